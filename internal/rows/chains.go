package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// A HeldError is returned by MarkOne when another row holds the key of the first. Nothing changed.
type HeldError struct{ Key bson.RawValue } // zero where the server does not tell it

func (e *HeldError) Error() string {
	return fmt.Sprintf("another row holds the key %s", Text(e.Key))
}

// held is the error of a claim that the server refuses because another row holds the key; nil when
// it is another error.
func (m *Mongo) held(err error) error {
	var command mongo.CommandError
	if m.chain.key == "" || !errors.As(err, &command) || command.Code != codeDuplicate {
		return nil
	}
	return &HeldError{command.Raw.Lookup("keyValue", m.chain.key)}
}

// A KeyError says that the server cannot keep rows with one key apart.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("Key %q needs a unique partial index, by which the server lets one row with a "+
		"key be worked on at a time, and that is not to be had here: %v", e.Key, e.Err)
}
func (e *KeyError) Unwrap() error { return e.Err }

// A chain is the rows that have one value in a field, the key, and hold it one after the other:
// from the first claim of a row until it is done or dead. Zero: there are none.
type chain struct {
	key   string
	path  []string
	letGo bool // a row that is retrying does not hold its key
}

// KeyOf returns the key of a document; false when it is in no chain.
func KeyOf(doc bson.Raw, key string) (bson.RawValue, bool) { return newChain(key, false).of(doc) }

func newChain(key string, letGo bool) chain {
	return chain{key: key, path: strings.Split(key, "."), letGo: letGo}
}

// of returns the key of a document; false when it is in no chain.
func (c chain) of(doc bson.Raw) (bson.RawValue, bool) {
	if c.key == "" || c.list(doc) != "" {
		return bson.RawValue{}, false
	}
	key, err := doc.LookupErr(c.path...)
	return key, err == nil
}

// list returns where on the way to its key a document has a list; empty: nowhere.
func (c chain) list(doc bson.Raw) string {
	for i := range c.path {
		if v, err := doc.LookupErr(c.path[:i+1]...); err == nil && v.Type == bson.TypeArray {
			return strings.Join(c.path[:i+1], ".")
		}
	}
	return ""
}

// ListIn returns the field that is a list, where the key of a document lies; empty: there is none,
// and the document is in one chain at most.
func ListIn(doc bson.Raw, key string) string { return newChain(key, false).list(doc) }

// Frees reports whether a row that goes to this state lets its key go. letGo: a retrying one does.
func (to State) Frees(letGo bool) bool {
	return to == Done || to == Dead || to == Retrying && letGo
}

// KeyText is a key, or an _id, as the key of a map: numbers are the same whatever their type is.
func KeyText(v bson.RawValue) string {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		if n, ok := v.AsInt64OK(); ok && (v.Type != bson.TypeDouble || float64(n) == v.Double()) {
			return fmt.Sprint("number ", n)
		}
	}
	return Key(v)
}

// mostHeld is how many held keys are read by one question, and mostHeldBytes how large they are
// together: they are sent back with the next one. Those beyond it the server refuses one by one.
const (
	mostHeld      = 10_000
	mostHeldBytes = 4 << 20
)

// Keyed makes rows that have the same value in this field chains. The name may be dotted; empty:
// there are none. letGo: a row that is retrying holds no key. Call it before anything else.
func (m *Mongo) Keyed(key string, letGo bool) *Mongo {
	if key == "" {
		return m
	}
	m.chain = newChain(key, letGo)
	if !slices.ContainsFunc(m.sort, func(by bson.E) bool { return by.Key == "_id" }) {
		m.sort = append(slices.Clip(m.sort), e("_id", 1)) // rows of one key are in one order for all
	}
	return m
}

// chained is said of rows that may be claimed as far as their keys go.
func (m *Mongo) chained(ask *Ask) []bson.E {
	if m.chain.key == "" {
		return nil
	}
	is := m.noArray()
	if ask == nil {
		return is
	}
	if out := m.notOf(append(slices.Clone(ask.Held), ask.Behind...)); len(ask.Behind) > 0 {
		is = append(is, e("$or", bson.A{out, append(m.ofKeys(ask.Behind), m.holds())}))
	} else {
		is = append(is, out...)
	}
	return is
}

// noArray is said of rows whose key is one value: one with several would be in several chains.
func (m *Mongo) noArray() (is []bson.E) {
	for i := range m.chain.path {
		is = append(is, e(strings.Join(m.chain.path[:i+1], "."), not(d("$type", "array"))))
	}
	return is
}

// notOf is said of rows that have none of these keys. A row without one is not of the key null.
func (m *Mongo) notOf(keys []bson.RawValue) (is bson.D) {
	values, types := asked(keys)
	if len(types) > 0 {
		is = append(is, e(m.chain.key, not(d("$type", types))))
	}
	if len(values) > 0 {
		is = append(is, e(m.chain.key, d("$nin", values)))
	}
	return is
}

func (m *Mongo) ofKeys(keys []bson.RawValue) bson.D {
	values, types := asked(keys)
	if len(types) == 0 {
		return d(m.chain.key, in(values))
	}
	return d("$or", bson.A{d(m.chain.key, in(values)), d(m.chain.key, d("$type", types))})
}

// asked are keys as a server is asked for them: by value, or by their type where a value says
// something else, or is refused. So a regular expression that is held as a key holds up the others,
// and {$gt: 1} all documents.
func asked(keys []bson.RawValue) (values []bson.RawValue, types []string) {
	values = []bson.RawValue{} // a nil one would be null
	for _, key := range keys {
		switch key.Type {
		case bson.TypeNull:
			types = append(types, "null")
		case bson.TypeUndefined:
			types = append(types, "undefined")
		case bson.TypeRegex:
			types = append(types, "regex")
		case bson.TypeEmbeddedDocument:
			if isOperator(key.Document()) {
				types = append(types, "object")
				continue
			}
			fallthrough
		default:
			values = append(values, key)
		}
	}
	return values, types
}

// isOperator reports whether a server takes a document that is a value for an operator: it begins
// with a dollar, and is no DBRef.
func isOperator(doc bson.Raw) bool {
	first, err := doc.IndexErr(0)
	return err == nil && strings.HasPrefix(first.Key(), "$") && doc.Lookup("$id").Type == 0
}

func (m *Mongo) holds() bson.E { return m.e("holds", m.chain.key) }

// markEach claims rows one by one in one command: one whose key is held is left as it is.
func (m *Mongo) markEach(ctx context.Context, ids []bson.RawValue, c Claim) error {
	_, bad, err := m.each(ctx, ids, func(id bson.RawValue) change {
		return change{m.mine(e("_id", id), m.isReady()), m.claiming(c)}
	})
	if err != nil {
		return err
	}
	var refused RefusedError
	for _, one := range bad {
		if one.Code != codeDuplicate {
			refused.Rows = append(refused.Rows, Refused{ids[one.Index], catalog.Shown(one)})
		}
	}
	return refused.orNil()
}

// Held is documented in [Store].
func (m *Mongo) Held(ctx context.Context, of []bson.RawValue) (
	keys []bson.RawValue, all bool, err error) {
	if m.chain.key == "" {
		return nil, true, nil
	}
	is := bson.D{m.holds(), m.e("state", in([]State{Claimed, Retrying}))}
	if of != nil {
		is = append(is, m.ofKeys(of)...)
	}
	opts := options.Find().SetProjection(bson.D{e("_id", 0), e(m.chain.key, 1)}).SetLimit(mostHeld).
		SetBatchSize(mostHeld + 1).SetHint(m.holders().keys)
	var docs []bson.Raw
	err = m.healed(ctx, func() (err error) {
		docs, err = m.docs(ctx, is, opts)
		return err
	})
	if err != nil {
		return nil, false, m.failed("find", err)
	}
	size := 0
	for _, doc := range docs {
		key, ok := m.chain.of(doc)
		if size += len(key.Value); ok && key.Type != bson.TypeNull && size <= mostHeldBytes {
			keys = append(keys, key) // null may be a row without a key: an index does not tell
		}
	}
	return keys, len(docs) < mostHeld && size <= mostHeldBytes, nil
}

// known is what a question for rows brings of them.
func (m *Mongo) known() bson.D {
	is := bson.D{e("_id", 1), e(m.field, 1)}
	if m.chain.key != "" && m.chain.path[0] != "_id" {
		is = append(is, e(m.chain.key, 1))
	}
	return is
}

// inOrder are the documents of a query in order. It names the index that it has to use, as Prepare
// has seen it: a planner may take another one of the user's, or that of _id, and read what is done.
func (m *Mongo) inOrder(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	docs []bson.Raw, err error) {
	if len(m.sort) > 0 {
		opts.SetSort(m.sort)
	}
	err = m.healed(ctx, func() error {
		if index := m.ordered.Load(); index != nil {
			opts.SetHint(index)
		}
		docs, err = m.docs(ctx, filter, opts)
		return err
	})
	return docs, err
}

func (m *Mongo) order() bson.D { return append(bson.D{m.e("state", 1)}, m.sort...) }

// healed sends a command that names an index, and again when that is gone, with its collection as a
// rule, or is being built: until the server has it.
func (m *Mongo) healed(ctx context.Context, send func() error) error {
	refused := func(err error) bool {
		return has(err, codeBadValue) && strings.Contains(err.Error(), "hint")
	}
	err := send()
	if refused(err) {
		if err := m.Prepare(ctx); err != nil {
			return err
		}
		err = send()
	}
	for refused(err) {
		if err := pause(ctx); err != nil {
			return err
		}
		err = send()
	}
	return err
}

// Settle is documented in [Store].
func (m *Mongo) Settle(ctx context.Context, keys []bson.RawValue) (int, error) {
	free := bson.D{m.unset("holds")}
	holders := func(more ...bson.E) bson.D {
		return append(append(m.ofKeys(keys), m.holds()), more...)
	}
	known := bson.A{nil, Ready, Claimed, Retrying}
	return m.carryOut(ctx,
		change{holders(m.e("state", d("$nin", known))), free},
		change{holders(m.isReady(), e("$nor", bson.A{m.mine(m.noArray()...)})), free},
	)
}

// gate is the index by which the server lets one row of a key be claimed at a time, and holders the
// one that says which keys are held.
func (m *Mongo) gate() index {
	return index{keys: bson.D{e(m.chain.key, 1), m.e("holds", 1)}, unique: true,
		only: bson.D{m.holds(), e(m.chain.key, d("$exists", true))}}
}

func (m *Mongo) holders() index {
	keys := bson.D{m.e("holds", 1), m.e("state", 1), e(m.chain.key, 1)}
	return index{keys: keys, only: bson.D{m.holds()}}
}
