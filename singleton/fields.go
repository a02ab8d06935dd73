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
	switch v.Type {
	case bson.TypeInt32:
		return int64(v.Int32()), true
	case bson.TypeInt64:
		return v.Int64(), true
	case bson.TypeDouble:
		f := v.Double()
		return int64(f), f == math.Trunc(f) && math.Abs(f) <= 1<<53
	}
	return 0, false
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
	prefix     string // the prefix of field names inside a nested document
	bad        **MalformedError
}

func open(collection string, raw bson.Raw) fields {
	f := fields{raw: raw, collection: collection, bad: new(*MalformedError)}
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

func (f fields) within(field string, raw bson.Raw) fields {
	f.raw, f.prefix = raw, field+"."
	return f
}

func (f fields) fail(field, format string, args ...any) {
	if *f.bad == nil {
		*f.bad = &MalformedError{Collection: f.collection, ID: f.id, Field: f.prefix + field,
			Problem: fmt.Sprintf(format, args...)}
	}
}

func (f fields) err() error {
	if *f.bad == nil {
		return nil
	}
	return *f.bad
}

func (f fields) lookup(field string) bson.RawValue { return f.raw.Lookup(field) }

// The methods below return the zero value for a missing field.

func (f fields) text(field string) string {
	v := f.lookup(field)
	s, ok := v.StringValueOK()
	if !ok && v.Type != 0 {
		f.fail(field, "must be a string, not %s", kindOf(v))
	}
	return s
}

func (f fields) flag(field string) bool {
	v := f.lookup(field)
	b, ok := v.BooleanOK()
	if !ok && v.Type != 0 {
		f.fail(field, "must be true or false, not %s", kindOf(v))
	}
	return b
}

func (f fields) count(field string) int64 {
	v := f.lookup(field)
	n, ok := number(v)
	if v.Type != 0 && (!ok || n < 0) {
		f.fail(field, "must be a whole number that is not negative")
		return 0
	}
	return n
}

func (f fields) date(field string) time.Time {
	v := f.lookup(field)
	if v.Type == 0 {
		return time.Time{}
	}
	ms, ok := v.DateTimeOK()
	if !ok {
		f.fail(field, "must be a Date, not %s", kindOf(v))
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
