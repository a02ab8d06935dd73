package cluster

import (
	"bytes"
	"cmp"
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// rank is the place of a type in the order of BSON values; 0 for a type that cannot stand in the
// bound of a chunk here: arrays and regular expressions are no shard keys, and decimals and the types
// that MongoDB gave up are not understood.
var rank = map[bson.Type]int{
	bson.TypeMinKey: 1, bson.TypeNull: 2, bson.TypeInt32: 3, bson.TypeInt64: 3, bson.TypeDouble: 3,
	bson.TypeString: 4, bson.TypeEmbeddedDocument: 5, bson.TypeBinary: 6, bson.TypeObjectID: 7,
	bson.TypeBoolean: 8, bson.TypeDateTime: 9, bson.TypeTimestamp: 10, bson.TypeMaxKey: 11,
}

// comparable reports whether every value of a bound has a place in the order.
func comparable(bound bson.Raw) bool {
	elements, err := bound.Elements()
	if err != nil {
		return false
	}
	for _, e := range elements {
		v := e.Value()
		if rank[v.Type] == 0 {
			return false
		}
		if inner, ok := v.DocumentOK(); ok && !comparable(inner) {
			return false
		}
	}
	return true
}

// compareBounds orders two documents as the server does: field by field, by type, then by name,
// then by value; a document that ends first is smaller. Both must be comparable.
func compareBounds(a, b bson.Raw) int {
	left, _ := a.Elements()  // checked when the bound was parsed
	right, _ := b.Elements() // checked when the bound was parsed
	for i := range min(len(left), len(right)) {
		x, y := left[i], right[i]
		if c := cmp.Compare(rank[x.Value().Type], rank[y.Value().Type]); c != 0 {
			return c
		}
		if c := strings.Compare(x.Key(), y.Key()); c != 0 {
			return c
		}
		if c := compareValues(x.Value(), y.Value()); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(left), len(right))
}

// compareValues orders two values of one rank. Binaries are ordered by length, then by subtype, then by
// content.
func compareValues(a, b bson.RawValue) int {
	switch a.Type {
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		return compareNumbers(a, b)
	case bson.TypeString:
		return strings.Compare(a.StringValue(), b.StringValue())
	case bson.TypeEmbeddedDocument:
		return compareBounds(a.Document(), b.Document())
	case bson.TypeBinary:
		xs, x := a.Binary()
		ys, y := b.Binary()
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(xs, ys), bytes.Compare(x, y))
	case bson.TypeObjectID, bson.TypeBoolean: // both are ordered as their bytes are
		return bytes.Compare(a.Value, b.Value)
	case bson.TypeDateTime:
		return cmp.Compare(a.DateTime(), b.DateTime())
	case bson.TypeTimestamp:
		x, y := timestamp(a), timestamp(b)
		return x.Compare(y)
	}
	return 0 // MinKey, MaxKey and null have one value each
}

func timestamp(v bson.RawValue) bson.Timestamp {
	t, i := v.Timestamp()
	return bson.Timestamp{T: t, I: i}
}

// compareNumbers orders numbers by value whatever their types; NaN is the smallest. Hashed bounds
// are 64 bit numbers that no double can tell apart, so whole numbers never become doubles.
func compareNumbers(a, b bson.RawValue) int {
	x, xWhole := whole(a)
	y, yWhole := whole(b)
	switch {
	case xWhole && yWhole:
		return cmp.Compare(x, y)
	case xWhole:
		return compareMixed(x, b.Double())
	case yWhole:
		return -compareMixed(y, a.Double())
	}
	return cmp.Compare(a.Double(), b.Double())
}

// compareMixed orders a whole number and a double without losing digits of either.
func compareMixed(n int64, f float64) int {
	switch {
	case math.IsNaN(f) || f < -1<<63:
		return 1
	case f >= 1<<63:
		return -1
	}
	floor := math.Floor(f)
	if c := cmp.Compare(n, int64(floor)); c != 0 {
		return c
	}
	return cmp.Compare(floor, f)
}

func whole(v bson.RawValue) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32:
		return int64(v.Int32()), true
	case bson.TypeInt64:
		return v.Int64(), true
	}
	return 0, false
}
