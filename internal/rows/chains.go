package rows

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Rows with the same value in the field Options.Key form a chain. This value is the key of the
// chain. At any time, at most one row of a chain holds the key. A row holds its key from its first
// claim until it is done or dead. A row without the field belongs to no chain.

// ListIn returns the first field on a dotted path whose value is a list, for example a.b on the
// path a.b.c. If no value is a list, it returns an empty string. A document with a list would be in
// several chains.
func ListIn(doc bson.Raw, key string) string {
	for _, path := range paths(key) {
		if Lookup(doc, path).Type == bson.TypeArray {
			return path
		}
	}
	return ""
}

// paths returns a, a.b and a.b.c for the name a.b.c.
func paths(name string) (all []string) {
	for i, letter := range name {
		if letter == '.' {
			all = append(all, name[:i])
		}
	}
	if name != "" {
		all = append(all, name)
	}
	return all
}

// MostHeld and mostHeldBytes limit the number and the total size of the keys that Held returns. The
// next claim skips the rows with these keys. If more keys are held, a claim may select a row whose
// key is held. The unique index then refuses the claim.
const (
	MostHeld      = 10_000
	mostHeldBytes = 4 << 20
)

// notOf returns a condition for the rows whose key differs from all given keys. It also matches a
// row without a key, even if null is a given key. In a query, a value that is a regular expression
// or a document like {$gt: 1} is an operator and not a value to compare with. If such a value is a
// given key, the condition excludes all keys of its type.
func (m *Mongo) notOf(keys []bson.RawValue) (is bson.D) {
	var values []bson.RawValue
	var types []string
	for _, key := range keys {
		kind := map[bson.Type]string{bson.TypeNull: "null", bson.TypeUndefined: "undefined",
			bson.TypeRegex: "regex"}[key.Type]
		if key.Type == bson.TypeEmbeddedDocument && isOperator(key.Document()) {
			kind = "object"
		}
		if kind != "" {
			types = append(types, kind)
		} else {
			values = append(values, key)
		}
	}
	if len(types) > 0 {
		is = append(is, e(m.Key, not(d("$type", types))))
	}
	if len(values) > 0 {
		is = append(is, e(m.Key, d("$nin", values)))
	}
	return is
}

// isOperator reports whether a server reads a document in a query as an operator. The first field
// name of an operator begins with a dollar. A DBRef also begins with a dollar, but is no operator.
func isOperator(doc bson.Raw) bool {
	first, err := doc.IndexErr(0)
	return err == nil && strings.HasPrefix(first.Key(), "$") && doc.Lookup("$id").Type == 0
}

func (m *Mongo) holds() bson.E { return m.e("holds", m.Key) }

func (m *Mongo) Held(ctx context.Context) (keys []bson.RawValue, err error) {
	opts := options.Find().SetProjection(bson.D{e("_id", 0), e(m.Key, 1)}).SetLimit(MostHeld).
		SetBatchSize(MostHeld + 1).SetHint(m.holders().keys)
	docs, err := m.docs(ctx, bson.D{m.holds()}, opts)
	if err != nil {
		return nil, m.failed("find", err)
	}
	size := 0
	for _, doc := range docs {
		key := Lookup(doc, m.Key)
		if size += len(key.Value); key.Type != 0 && key.Type != bson.TypeNull && size <= mostHeldBytes {
			keys = append(keys, key) // null may be a missing key, which has the same index entry
		}
	}
	return keys, nil
}

// inOrder returns the documents of a query in the order of the queue. The query has an index hint.
// Without the hint, a server may choose the index of _id and read all done rows.
func (m *Mongo) inOrder(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	[]bson.Raw, error) {
	if len(m.sort) > 0 {
		opts.SetSort(m.sort).SetHint(m.order())
	}
	return m.docs(ctx, filter, opts)
}

func (m *Mongo) order() bson.D { return append(bson.D{m.e("state", 1)}, m.sort...) }

func (m *Mongo) Settle(ctx context.Context) (int, error) {
	free := bson.D{m.unset("holds")}
	over := bson.D{m.holds(), m.e("state", in([]State{Done, Dead}))}
	changes := []change{{filter: over, update: free}}
	if len(m.Filter) > 0 {
		outside := bson.D{m.holds(), m.isReady(), e("$nor", bson.A{m.Filter})}
		changes = append(changes, change{filter: outside, update: free})
	}
	return m.carryOut(ctx, "update", changes...)
}

// gate returns the unique index that allows only one row to hold a key.
func (m *Mongo) gate() index {
	return index{keys: bson.D{e(m.Key, 1), m.e("holds", 1)}, unique: true,
		only: bson.D{m.holds(), e(m.Key, d("$exists", true))}}
}

func (m *Mongo) holders() index {
	keys := bson.D{m.e("holds", 1), m.e("state", 1), e(m.Key, 1)}
	return index{keys: keys, only: bson.D{m.holds()}}
}
