package memcatalog

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

func text(s string) bson.RawValue {
	value := binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1))
	value = append(append(value, s...), 0)
	return bson.RawValue{Type: bson.TypeString, Value: value}
}

// valueOf returns v as BSON. BSON must be able to represent v.
func valueOf(v any) bson.RawValue {
	t, value, _ := bson.MarshalValue(v)
	return bson.RawValue{Type: t, Value: value}
}

// compare compares v with n as numbers, whatever their BSON types. If v is NaN, a Decimal128 or no
// number, ok is false.
func compare(v bson.RawValue, n int64) (order int, ok bool) {
	if f, isDouble := v.DoubleOK(); isDouble {
		return cmp.Compare(f, float64(n)), !math.IsNaN(f)
	}
	whole, ok := v.AsInt64OK()
	return cmp.Compare(whole, n), ok
}

// equalsNumber returns a function that reports whether a value meets {field: n}.
func equalsNumber(n int64) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool { order, ok := compare(v, n); return ok && order == 0 }
}

// below(v, n) reports whether v meets the condition {field: {$lt: n}}. v must not be an array.
func below(v bson.RawValue, n int64) bool { order, ok := compare(v, n); return ok && order < 0 }

// positive reports whether v meets the condition {field: {$gt: 0}}. v must not be an array.
func positive(v bson.RawValue) bool { order, ok := compare(v, 0); return ok && order > 0 }

// equals returns a function that reports whether a value meets {field: want}. The value want must
// not be a number.
func equals(want bson.RawValue) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool {
		return v.Type == want.Type && slices.Equal(v.Value, want.Value)
	}
}

// holds reports whether a value meets a filter. As on a server, an array also meets the filter if
// one of its elements does.
func holds(v bson.RawValue, filter func(bson.RawValue) bool) bool {
	if filter(v) {
		return true
	}
	list, ok := v.ArrayOK()
	if !ok {
		return false
	}
	values, _ := list.Values() // a stored document is valid
	return slices.ContainsFunc(values, filter)
}

// fields are the fields of a document, in their order.
type fields []field

type field struct {
	key   string
	value bson.RawValue
}

// take returns the fields of a document, which must be valid BSON.
func take(raw bson.Raw) fields {
	elements, err := raw.Elements()
	if err != nil || len(elements) == 0 {
		return nil
	}
	f := make(fields, len(elements), len(elements)+8)
	for i, e := range elements {
		f[i] = field{e.Key(), e.Value()}
	}
	return f
}

func (f fields) raw() bson.Raw {
	size := 5
	for _, e := range f {
		size += 2 + len(e.key) + len(e.value.Value)
	}
	raw := make(bson.Raw, 0, size)
	raw = binary.LittleEndian.AppendUint32(raw, uint32(size))
	for _, e := range f {
		raw = append(raw, byte(e.value.Type))
		raw = append(append(raw, e.key...), 0)
		raw = append(raw, e.value.Value...)
	}
	return append(raw, 0)
}

// f.at(key) returns the index of the field with the given name, or -1. If the name occurs twice,
// the last field counts, as in package catalog.
func (f fields) at(key string) int {
	for i := len(f) - 1; i >= 0; i-- {
		if f[i].key == key {
			return i
		}
	}
	return -1
}

func (f fields) get(key string) bson.RawValue {
	if i := f.at(key); i >= 0 {
		return f[i].value
	}
	return bson.RawValue{} // missing
}

// lookup returns the value at a path of one or two names.
func (f fields) lookup(path string) bson.RawValue {
	key, below, deep := strings.Cut(path, ".")
	v := f.get(key)
	if !deep {
		return v
	}
	doc, _ := v.DocumentOK()
	return take(doc).get(below)
}

// put sets a field. It may change f.
func (f fields) put(key string, v bson.RawValue) fields {
	if i := f.at(key); i >= 0 {
		f[i].value = v
		return f
	}
	return append(f, field{key, v})
}

// deep sets the field at a path of one or two names.
func (f fields) deep(path string, v any) fields {
	set := valueOf(v)
	key, below, deep := strings.Cut(path, ".")
	if deep {
		doc, _ := f.get(key).DocumentOK()
		set = bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: take(doc).put(below, set).raw()}
	}
	return f.put(key, set)
}

// f.without(key) returns the fields other than key. It may change f.
func (f fields) without(key string) fields {
	return slices.DeleteFunc(f, func(f field) bool { return f.key == key })
}

// changed returns the lock document after a change, with a larger value of the field rev. New
// fields come last: first rev, then the others sorted by name.
func (f fields) changed(c catalog.Change) bson.Raw {
	next, _ := c.NextRev(f.get("rev"))
	out := slices.Clone(f).put("rev", valueOf(next))
	for _, e := range c.Set {
		out = out.deep(e.Key, e.Value)
	}
	for _, key := range c.Unset {
		out = out.without(key)
	}
	return out.raw()
}
