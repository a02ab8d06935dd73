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

// valueOf converts v to BSON. BSON must be able to represent v.
func valueOf(v any) bson.RawValue {
	t, value, _ := bson.MarshalValue(v)
	return bson.RawValue{Type: t, Value: value}
}

// compare compares v, a number of any type but Decimal128, with n by value, as the server does. ok
// is false for NaN and for a value that is not such a number.
func compare(v bson.RawValue, n int64) (order int, ok bool) {
	if f, isDouble := v.DoubleOK(); isDouble {
		return cmp.Compare(f, float64(n)), !math.IsNaN(f)
	}
	whole, ok := v.AsInt64OK()
	return cmp.Compare(whole, n), ok
}

// equalsNumber returns the filter {field: n}.
func equalsNumber(n int64) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool { order, ok := compare(v, n); return ok && order == 0 }
}

// below applies the filter {field: {$lt: n}} to a value that is not an array.
func below(v bson.RawValue, n int64) bool { order, ok := compare(v, n); return ok && order < 0 }

// positive applies the filter {field: {$gt: 0}}.
func positive(v bson.RawValue) bool { order, ok := compare(v, 0); return ok && order > 0 }

// equals returns the filter {field: want}. want must not be a number.
func equals(want bson.RawValue) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool {
		return v.Type == want.Type && slices.Equal(v.Value, want.Value)
	}
}

// holds applies a filter to a value like the server: an array matches if an element matches.
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

// fields are a document's fields in their order.
type fields []field

type field struct {
	key   string
	value bson.RawValue
}

// take splits a document into its fields. Stored documents are valid BSON.
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

// at returns the index of the last field with that name, or -1. Package catalog also reads the last
// field.
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

// lookup gets the value at a path of one or two names. Only a document has subfields.
func (f fields) lookup(path string) bson.RawValue {
	key, below, deep := strings.Cut(path, ".")
	v := f.get(key)
	if !deep {
		return v
	}
	doc, _ := v.DocumentOK()
	return take(doc).get(below)
}

// put sets a field. The caller must own f.
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

// without removes a field. The caller must own f.
func (f fields) without(key string) fields {
	return slices.DeleteFunc(f, func(f field) bool { return f.key == key })
}

// changed returns the lock document after a change, with rev raised. New fields come last: rev,
// then the others by name.
func (f fields) changed(c catalog.Change) bson.Raw {
	out := slices.Clone(f)
	if next, ok := c.NextRev(f.get("rev")); ok {
		out = out.put("rev", valueOf(next))
	}
	for _, e := range c.Set {
		out = out.deep(e.Key, e.Value)
	}
	for _, key := range c.Unset {
		out = out.without(key)
	}
	return out.raw()
}
