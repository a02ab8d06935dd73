package rows

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A HeldError is the error of Claim if another row holds the key of the first ready row. The
// command changed no row.
type HeldError struct{ Key bson.RawValue } // zero if the server does not report the key

func (e *HeldError) Error() string {
	return fmt.Sprintf("another row holds the key %s", Text(e.Key))
}

// held returns a *HeldError if the server refused a claim because of a held key, and nil for other
// errors.
func (m *Mongo) held(err error) error {
	var command mongo.CommandError
	if m.chain.key == "" || !errors.As(err, &command) || command.Code != codeDuplicate {
		return nil
	}
	return &HeldError{command.Raw.Lookup("keyValue", m.chain.key)}
}

// A KeyError reports that the server cannot have the unique index for chains.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("Key %q needs a unique partial index, by which the server lets one row of a "+
		"key be claimed at a time, and this server cannot have it: %v", e.Key, e.Err)
}
func (e *KeyError) Unwrap() error { return e.Err }

// A chain names the key of a queue's chains. The rows with one value in that field are a chain. One
// of them holds the key at a time, from its first claim until it is done or dead. With a zero chain
// there are no chains.
type chain struct {
	key  string
	path []string
}

func newChain(key string) chain { return chain{key: key, path: strings.Split(key, ".")} }

// KeyOf returns the key of a document, or false if the document is in no chain.
func KeyOf(doc bson.Raw, key string) (bson.RawValue, bool) { return newChain(key).of(doc) }

func (c chain) of(doc bson.Raw) (bson.RawValue, bool) {
	key, err := doc.LookupErr(c.path...)
	return key, err == nil
}

// ListIn returns the first field on the path of the key that is a list in the document, or an empty
// string. A document with a list would be in several chains.
func ListIn(doc bson.Raw, key string) string {
	c := newChain(key)
	for i := range c.path {
		if v, err := doc.LookupErr(c.path[:i+1]...); err == nil && v.Type == bson.TypeArray {
			return strings.Join(c.path[:i+1], ".")
		}
	}
	return ""
}

// KeyText returns a key as a string for a map. Equal numbers of different types have the same
// string.
func KeyText(v bson.RawValue) string {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		if n, ok := v.AsInt64OK(); ok && (v.Type != bson.TypeDouble || float64(n) == v.Double()) {
			return fmt.Sprint("number ", n)
		}
	}
	return Key(v)
}

// MostHeld is the most held keys that one command reads. Their size is at most mostHeldBytes,
// because the next claim sends them back. The server refuses claims of other held keys one by one.
const (
	MostHeld      = 10_000
	mostHeldBytes = 4 << 20
)

// notOf matches the rows that have none of these keys. A row without the field does not have the
// key null.
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

// asked returns keys in the form for a query. A key is in types instead of values if the server
// would refuse its value or read it as an operator. A held regular expression therefore delays all
// rows with a regular expression as their key, and {$gt: 1} all rows with a document as their key.
func asked(keys []bson.RawValue) (values []bson.RawValue, types []string) {
	values = []bson.RawValue{} // a nil slice would be null
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

// isOperator reports whether a server reads a document as an operator. This is so if its first name
// begins with a dollar, except in a DBRef.
func isOperator(doc bson.Raw) bool {
	first, err := doc.IndexErr(0)
	return err == nil && strings.HasPrefix(first.Key(), "$") && doc.Lookup("$id").Type == 0
}

func (m *Mongo) holds() bson.E { return m.e("holds", m.chain.key) }

// Held is documented in [Store].
func (m *Mongo) Held(ctx context.Context) (keys []bson.RawValue, err error) {
	if m.chain.key == "" {
		return nil, nil
	}
	opts := options.Find().SetProjection(bson.D{e("_id", 0), e(m.chain.key, 1)}).SetLimit(MostHeld).
		SetBatchSize(MostHeld + 1).SetHint(m.holders().keys)
	var docs []bson.Raw
	err = m.healed(ctx, func() (err error) {
		docs, err = m.docs(ctx, bson.D{m.holds()}, opts)
		return err
	})
	if err != nil {
		return nil, m.failed("find", err)
	}
	size := 0
	for _, doc := range docs {
		key, ok := m.chain.of(doc)
		if size += len(key.Value); ok && key.Type != bson.TypeNull && size <= mostHeldBytes {
			keys = append(keys, key) // null may be a row without a key: the index has one entry for both
		}
	}
	return keys, nil
}

// inOrder returns the documents of a query in order. The query names its index, because a planner
// may choose the index of _id and read all done rows.
func (m *Mongo) inOrder(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	docs []bson.Raw, err error) {
	if len(m.sort) > 0 {
		opts.SetSort(m.sort).SetHint(m.order())
	}
	err = m.healed(ctx, func() error {
		docs, err = m.docs(ctx, filter, opts)
		return err
	})
	return docs, err
}

func (m *Mongo) order() bson.D { return append(bson.D{m.e("state", 1)}, m.sort...) }

// healed sends a command that names an index. If the index is missing, for example after a drop of
// the collection, healed creates it and sends the command again.
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
func (m *Mongo) Settle(ctx context.Context) (int, error) {
	if m.chain.key == "" {
		return 0, nil
	}
	over := change{bson.D{m.holds(), m.e("state", in([]State{Done, Dead}))},
		bson.D{m.unset("holds")}}
	if len(m.filter) == 0 {
		n, err := m.all(ctx, over)
		return n, m.failed("update", err)
	}
	outside := change{bson.D{m.holds(), m.isReady(), e("$nor", bson.A{m.filter})},
		bson.D{m.unset("holds")}}
	n, err := m.all(ctx, over, outside)
	return n, m.failed("update", err)
}

// gate returns the index with which the server allows only one row of a key to hold that key.
func (m *Mongo) gate() index {
	return index{keys: bson.D{e(m.chain.key, 1), m.e("holds", 1)}, unique: true,
		only: bson.D{m.holds(), e(m.chain.key, d("$exists", true))}}
}

// holders returns the index of the held keys.
func (m *Mongo) holders() index {
	keys := bson.D{m.e("holds", 1), m.e("state", 1), e(m.chain.key, 1)}
	return index{keys: keys, only: bson.D{m.holds()}}
}
