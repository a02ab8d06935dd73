package singleton

import (
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// number converts a value of any numeric type. If v is not a whole number, ok is false.
func number(v bson.RawValue) (n int64, ok bool) {
	if v.Type == bson.TypeDouble {
		f := v.Double()
		return int64(f), f == math.Trunc(f) && math.Abs(f) <= 1<<53
	}
	n, ok = v.AsInt64OK()
	return n, ok && (v.Type == bson.TypeInt32 || v.Type == bson.TypeInt64)
}

func kindOf(v bson.RawValue) string {
	if v.Type == 0 {
		return "missing"
	}
	return v.Type.String()
}

// fields reads the fields of a document. It stores the first error.
type fields struct {
	raw        bson.Raw
	collection string
	id         string
	err        *error
}

func open(collection string, raw bson.Raw) fields {
	f := fields{raw: raw, collection: collection, err: new(error)}
	if raw.Validate() != nil {
		f.raw = nil
		f.fail("_id", "cannot be read: the document is damaged")
		return f
	}
	var ok bool
	if f.id, ok = raw.Lookup("_id").StringValueOK(); !ok {
		f.fail("_id", "must be a string, not %s", kindOf(raw.Lookup("_id")))
	}
	return f
}

func (f fields) fail(field, format string, args ...any) {
	if *f.err == nil {
		*f.err = &MalformedError{Collection: f.collection, ID: f.id, Field: field,
			Problem: fmt.Sprintf(format, args...)}
	}
}

// value converts a field with the given function, and returns the result of the function. If the
// function returns false, and the field is not missing, value also records an error.
func value[T any](f fields, field, want string, as func(bson.RawValue) (T, bool)) T {
	v := f.raw.Lookup(field)
	got, ok := as(v)
	if !ok && v.Type != 0 {
		f.fail(field, "must be %s, not %s", want, kindOf(v))
	}
	return got
}

// The methods below return the zero value for a missing field.

func (f fields) text(field string) string {
	return value(f, field, "a string", bson.RawValue.StringValueOK)
}

func (f fields) flag(field string) bool {
	return value(f, field, "true or false", bson.RawValue.BooleanOK)
}

func (f fields) date(field string) time.Time {
	return value(f, field, "a Date", func(v bson.RawValue) (time.Time, bool) {
		at, ok := v.TimeOK()
		return at.UTC(), ok
	})
}

func (f fields) count(field string) int64 {
	v := f.raw.Lookup(field)
	n, ok := number(v)
	if v.Type != 0 && (!ok || n < 0) {
		f.fail(field, "must be a whole number that is not negative")
		return 0
	}
	return n
}
