package mongocatalog_test

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func null(v any) bool { return v == nil || v == any(missing{}) || v == any(bson.Undefined{}) }

func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case int32, int64, float64:
		return float(v) != 0
	}
	return !null(v)
}

func concat(v []any) any {
	var b strings.Builder
	for _, one := range v {
		if null(one) {
			return nil
		}
		text, ok := one.(string)
		if !ok {
			fail("$concat of %T", one)
		}
		b.WriteString(text)
	}
	return b.String()
}

func sum(operator string, v []any) any {
	total, long := int64(0), false
	for i, one := range v {
		n := int64(0)
		switch one := one.(type) {
		case int32:
			n = int64(one)
		case int64:
			n, long = one, true
		default:
			if null(one) {
				return nil
			}
			fail("%s of %T", operator, one)
		}
		if operator == "$subtract" && i > 0 {
			n = -n
		}
		total += n
	}
	if long {
		return total
	}
	return int32(total)
}

func greatest(v []any) any {
	var best any
	for _, one := range v {
		if !null(one) && (best == nil || compare(one, best) > 0) {
			best = one
		}
	}
	return best
}

func convert(v, to, onError, onNull any) any {
	if null(v) {
		return onNull
	}
	least, most := int64(math.MinInt32), int64(math.MaxInt32)
	if to == "long" {
		least, most = math.MinInt64, math.MaxInt64
	}
	n, ok := int64(0), true
	switch v := v.(type) {
	case int32:
		n = int64(v)
	case int64:
		n = v
	case float64:
		n, ok = int64(v), v > float64(least)-1 && v < float64(most)
	case bool:
		n = map[bool]int64{true: 1}[v]
	case bson.DateTime:
		n, ok = int64(v), to == "long"
	case string:
		var err error
		n, err = strconv.ParseInt(v, 10, 64)
		ok = err == nil
	case bson.ObjectID:
		if to == "string" {
			return v.Hex()
		}
		ok = false
	default:
		ok = false
	}
	switch {
	case ok && to == "string":
		return strconv.FormatInt(n, 10)
	case !ok || n < least || n > most:
		if refused, is := onError.(wrong); is {
			fail("%s of %v", refused, v)
		}
		return onError
	case to == "int":
		return int32(n)
	}
	return n
}

// rank returns the position of a value's type in the server's sort order.
func rank(v any) int {
	switch v.(type) {
	case missing, bson.Undefined:
		return 0
	case nil:
		return 1
	case int32, int64, float64:
		return 2
	case string:
		return 3
	case bson.D:
		return 4
	case bson.A, unread:
		return 5
	case bson.ObjectID:
		return 6
	case bool:
		return 7
	case bson.DateTime:
		return 8
	case bson.Decimal128:
		return 9 // not a number here: no pipeline accepts one
	}
	fail("a value of type %T is not known", v)
	return 0
}

func typeName(v any) string {
	switch v.(type) {
	case int32:
		return "int"
	case int64:
		return "long"
	case float64:
		return "double"
	case bson.Undefined:
		return "undefined"
	}
	return []string{"missing", "null", "", "string", "object", "array", "objectId", "bool",
		"date", "decimal"}[rank(v)]
}

func compare(a, b any) int {
	if d := cmp.Compare(rank(a), rank(b)); d != 0 {
		return d
	}
	switch a := a.(type) {
	case int32, int64, float64:
		x, whole := integer(a)
		y, both := integer(b)
		if whole && both {
			return cmp.Compare(x, y)
		}
		return cmp.Compare(float(a), float(b))
	case string:
		return strings.Compare(a, b.(string))
	case bson.D:
		return slices.CompareFunc(a, b.(bson.D), func(x, y bson.E) int {
			return cmp.Or(cmp.Compare(rank(x.Value), rank(y.Value)), strings.Compare(x.Key, y.Key),
				compare(x.Value, y.Value))
		})
	case bson.A:
		return slices.CompareFunc(a, b.(bson.A), compare)
	case bson.ObjectID:
		o := b.(bson.ObjectID)
		return bytes.Compare(a[:], o[:])
	case bool:
		return cmp.Compare(map[bool]int{true: 1}[a], map[bool]int{true: 1}[b.(bool)])
	case bson.DateTime:
		return cmp.Compare(a, b.(bson.DateTime))
	}
	return 0
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}

func float(v any) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	n, _ := integer(v)
	return float64(n)
}
