package cluster

import (
	"bytes"
	"cmp"
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// rank is the place of a type in the order of BSON values; 0 for a type that cannot stand in the
// bound of a chunk here: arrays and regular expressions are no shard keys, and decimals are not
// understood.
func rank(t bson.Type) int {
	switch t {
	case bson.TypeMinKey:
		return 1
	case bson.TypeUndefined, bson.TypeNull:
		return 2
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble:
		return 3
	case bson.TypeString, bson.TypeSymbol:
		return 4
	case bson.TypeEmbeddedDocument:
		return 5
	case bson.TypeBinary:
		return 6
	case bson.TypeObjectID:
		return 7
	case bson.TypeBoolean:
		return 8
	case bson.TypeDateTime:
		return 9
	case bson.TypeTimestamp:
		return 10
	case bson.TypeMaxKey:
		return 11
	}
	return 0
}

// comparable reports whether every value of a bound has a place in the order.
func comparable(bound bson.Raw) bool {
	elements, err := bound.Elements()
	if err != nil {
		return false
	}
	for _, e := range elements {
		v := e.Value()
		if rank(v.Type) == 0 {
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
		if c := cmp.Compare(rank(x.Value().Type), rank(y.Value().Type)); c != 0 {
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

// compareValues orders two values of one rank.
func compareValues(a, b bson.RawValue) int {
	switch rank(a.Type) {
	case 3:
		return compareNumbers(a, b)
	case 4:
		return strings.Compare(textOf(a), textOf(b))
	case 5:
		return compareBounds(a.Document(), b.Document())
	case 6:
		return compareBinaries(a, b)
	case 7:
		x, y := a.ObjectID(), b.ObjectID()
		return bytes.Compare(x[:], y[:])
	case 8:
		return cmp.Compare(bit(a.Boolean()), bit(b.Boolean()))
	case 9:
		return cmp.Compare(a.DateTime(), b.DateTime())
	case 10:
		xt, xi := a.Timestamp()
		yt, yi := b.Timestamp()
		return cmp.Or(cmp.Compare(xt, yt), cmp.Compare(xi, yi))
	}
	return 0 // MinKey, MaxKey and null have one value each
}

// compareBinaries orders by length, then by subtype, then by content.
func compareBinaries(a, b bson.RawValue) int {
	xs, x := a.Binary()
	ys, y := b.Binary()
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(xs, ys), bytes.Compare(x, y))
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

func textOf(v bson.RawValue) string {
	if s, ok := v.SymbolOK(); ok {
		return s
	}
	return v.StringValue()
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
