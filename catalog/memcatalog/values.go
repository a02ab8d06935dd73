package memcatalog

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// missing is the value of a field that is not there.
var missing bson.RawValue

func text(s string) bson.RawValue {
	value := binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1))
	value = append(append(value, s...), 0)
	return bson.RawValue{Type: bson.TypeString, Value: value}
}

func int32Of(n int32) bson.RawValue {
	value := binary.LittleEndian.AppendUint32(nil, uint32(n))
	return bson.RawValue{Type: bson.TypeInt32, Value: value}
}

func int64Of(n int64) bson.RawValue {
	value := binary.LittleEndian.AppendUint64(nil, uint64(n))
	return bson.RawValue{Type: bson.TypeInt64, Value: value}
}

func doubleOf(f float64) bson.RawValue {
	value := binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))
	return bson.RawValue{Type: bson.TypeDouble, Value: value}
}

func dateOf(t time.Time) bson.RawValue {
	v := int64Of(t.UnixMilli())
	v.Type = bson.TypeDateTime
	return v
}

func objectIDOf(id bson.ObjectID) bson.RawValue {
	return bson.RawValue{Type: bson.TypeObjectID, Value: slices.Clone(id[:])}
}

func documentOf(f fields) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: f.raw()}
}

// sign compares a number with zero, as the server does whatever its type. It is not ok for NaN
// and for what is no number.
func sign(v bson.RawValue) (n int, ok bool) {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		whole, _ := v.AsInt64OK()
		return compareFloat(float64(whole), 0), true
	case bson.TypeDouble:
		f := v.Double()
		return compareFloat(f, 0), !math.IsNaN(f)
	case bson.TypeDecimal128:
		d := v.Decimal128()
		if d.IsInf() != 0 {
			return d.IsInf(), true
		}
		whole, _, err := d.BigInt()
		if err != nil {
			return 0, false
		}
		return whole.Sign(), true
	default:
		return 0, false
	}
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// equalsNumber is the filter {field: n}.
func equalsNumber(n int64) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool {
		switch v.Type {
		case bson.TypeInt32, bson.TypeInt64:
			whole, ok := v.AsInt64OK()
			return ok && whole == n
		case bson.TypeDouble:
			f := v.Double()
			return f == math.Trunc(f) && math.Abs(f) < 1<<63 && int64(f) == n
		case bson.TypeDecimal128:
			s, ok := sign(v)
			return n == 0 && ok && s == 0
		default:
			return false
		}
	}
}

// below is the filter {field: {$lt: n}} for a field that is no array.
func below(n int64) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool {
		switch v.Type {
		case bson.TypeInt32, bson.TypeInt64:
			whole, ok := v.AsInt64OK()
			return ok && whole < n
		case bson.TypeDouble:
			return v.Double() < float64(n)
		case bson.TypeDecimal128:
			d := v.Decimal128()
			if d.IsInf() != 0 {
				return d.IsInf() < 0
			}
			number, ok := new(big.Rat).SetString(d.String())
			return ok && number.Cmp(new(big.Rat).SetInt64(n)) < 0
		default:
			return false
		}
	}
}

// positive is the filter {field: {$gt: 0}}.
func positive(v bson.RawValue) bool {
	s, ok := sign(v)
	return ok && s > 0
}

// equals is the filter {field: want} for a value that is no number.
func equals(want bson.RawValue) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool {
		return v.Type == want.Type && slices.Equal(v.Value, want.Value)
	}
}

// holds applies a filter to a value as the server does: an array matches if an element does.
func holds(v bson.RawValue, filter func(bson.RawValue) bool) bool {
	if filter(v) {
		return true
	}
	list, ok := v.ArrayOK()
	if !ok {
		return false
	}
	values, err := list.Values()
	return err == nil && slices.ContainsFunc(values, filter)
}

// A fields is a document taken apart, in its order.
type fields []field

type field struct {
	key   string
	value bson.RawValue
}

// take takes a document apart. Stored documents are valid BSON.
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

// at returns the place of the last field of that name, -1 when there is none. Package catalog
// reads the last one, too.
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
	return missing
}

// with returns the document with one field set.
func (f fields) with(key string, v bson.RawValue) fields {
	return slices.Clone(f).put(key, v)
}

// put is with on a document that nobody else has.
func (f fields) put(key string, v bson.RawValue) fields {
	if i := f.at(key); i >= 0 {
		f[i].value = v
		return f
	}
	return append(f, field{key, v})
}

// An edit writes one field: the value, or the value found plus inc.
type edit struct {
	key   string
	value bson.RawValue
	inc   int64
	unset bool
}

func unset(key string) edit                { return edit{key: key, unset: true} }
func set(key string, v bson.RawValue) edit { return edit{key: key, value: v} }
func inc(key string) edit                  { return edit{key: key, inc: 1} }

// apply returns the document with the changes made. New fields follow the old ones in the order of
// the changes; a server appends them in the order of their names, and so do the callers.
func (f fields) apply(collection string, changes ...edit) (bson.Raw, *catalog.MalformedError) {
	out := slices.Clone(f)
	for _, c := range changes {
		if c.unset {
			out = slices.DeleteFunc(out, func(f field) bool { return f.key == c.key })
			continue
		}
		v := c.value
		if c.inc != 0 {
			var problem string
			if v, problem = raise(out.get(c.key), c.inc); problem != "" {
				id, _ := f.get("_id").StringValueOK()
				return nil, &catalog.MalformedError{
					Collection: collection, ID: id, Field: c.key, Problem: problem,
				}
			}
		}
		out = out.put(c.key, v)
	}
	return out.raw(), nil
}

// raise is $inc with an int64.
func raise(v bson.RawValue, by int64) (raised bson.RawValue, problem string) {
	switch v.Type {
	case 0:
		return int64Of(by), ""
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := v.AsInt64OK()
		if n > math.MaxInt64-by {
			return missing, "cannot be raised: it is the largest number there is"
		}
		return int64Of(n + by), ""
	case bson.TypeDouble:
		return doubleOf(v.Double() + float64(by)), ""
	default:
		return missing, "cannot be raised: it must be a number, not " + v.Type.String()
	}
}
