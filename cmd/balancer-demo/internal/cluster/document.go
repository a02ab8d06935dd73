package cluster

import (
	"fmt"

	"mongodlm/catalog"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Names of the collections whose documents this package understands.
const (
	ShardsCollection      = "shards"
	CollectionsCollection = "collections"
	ChunksCollection      = "chunks"
	ChangelogCollection   = "changelog"
	RoundsCollection      = "rounds"
)

// document reads the fields of one foreign document and keeps the first thing that is wrong with
// it, so that a parser can read all fields and ask once.
type document struct {
	collection string
	id         string
	prefix     string // of field names in errors
	fields     map[string]bson.RawValue
	bad        *catalog.MalformedError
}

// open checks that raw is a document with an _id. Of a field that occurs twice the last counts,
// as for the decoder of the driver.
func open(collection string, raw bson.Raw) *document {
	d := &document{collection: collection, fields: map[string]bson.RawValue{}}
	if raw.Validate() != nil {
		d.fail("_id", "cannot be read: the document is damaged")
		return d
	}
	elements, _ := raw.Elements() // cannot fail, raw is valid
	for _, e := range elements {
		d.fields[e.Key()] = e.Value()
	}
	id := d.fields["_id"]
	d.id = idText(id)
	if absent(id) {
		d.fail("_id", "is missing")
	}
	return d
}

func (d *document) fail(field, format string, args ...any) {
	if d.bad == nil {
		d.bad = &catalog.MalformedError{
			Collection: d.collection, ID: d.id, Field: d.prefix + field,
			Problem: fmt.Sprintf(format, args...),
		}
	}
}

// err returns what is wrong, as an error that is nil when nothing is.
func (d *document) err() error {
	if d.bad == nil {
		return nil
	}
	return d.bad
}

func (d *document) has(field string) bool { return !absent(d.fields[field]) }

// text reads a string that must be there and not be empty.
func (d *document) text(field string) string {
	s, ok := d.fields[field].StringValueOK()
	if !ok {
		d.fail(field, "must be a string, not %s", describe(d.fields[field]))
	} else if s == "" {
		d.fail(field, "must not be empty")
	}
	return s
}

// optionalText reads a string that may be missing.
func (d *document) optionalText(field string) string {
	if !d.has(field) {
		return ""
	}
	s, ok := d.fields[field].StringValueOK()
	if !ok {
		d.fail(field, "must be a string, not %s", describe(d.fields[field]))
	}
	return s
}

// flag reads a boolean that may be missing. A number counts as true unless it is zero, as for
// mongos: shells of all ages have written 1.
func (d *document) flag(field string) bool {
	v := d.fields[field]
	if absent(v) {
		return false
	}
	if b, ok := v.BooleanOK(); ok {
		return b
	}
	if !v.IsNumber() || v.Type == bson.TypeDecimal128 {
		d.fail(field, "must be true or false, not %s", describe(v))
		return false
	}
	return v.AsFloat64() != 0
}

// whole reads a whole number that may be missing and is not negative.
func (d *document) whole(field string) int64 {
	v := d.fields[field]
	if absent(v) {
		return 0
	}
	var n int64
	switch v.Type {
	case bson.TypeInt32:
		n = int64(v.Int32())
	case bson.TypeInt64:
		n = v.Int64()
	case bson.TypeDouble:
		n = int64(v.Double())
		if float64(n) != v.Double() {
			d.fail(field, "must be a whole number")
		}
	default:
		d.fail(field, "must be a whole number, not %s", describe(v))
	}
	if n < 0 {
		d.fail(field, "must not be negative")
	}
	return n
}

// stamp reads a Timestamp.
func (d *document) stamp(field string, needed bool) bson.Timestamp {
	v := d.fields[field]
	if absent(v) && !needed {
		return bson.Timestamp{}
	}
	t, i, ok := v.TimestampOK()
	if !ok {
		d.fail(field, "must be a Timestamp, not %s", describe(v))
	}
	return bson.Timestamp{T: t, I: i}
}

// inner reads a document, or the text of one in extended JSON as Stored writes it.
func (d *document) inner(field string) bson.Raw {
	v := d.fields[field]
	raw, ok := v.DocumentOK()
	if text, isText := v.StringValueOK(); isText {
		var err error
		if raw, err = parseJSON([]byte(text)); err != nil {
			d.fail(field, "is a text that is no extended JSON document")
			return nil
		}
		ok = true
	}
	if !ok {
		d.fail(field, "must be a document, not %s", describe(v))
		return nil
	}
	if elements, err := raw.Elements(); err != nil || len(elements) == 0 {
		d.fail(field, "must not be an empty document")
		return nil
	}
	return raw
}

// uuid reads a UUID as a text of its 16 bytes; empty when it is missing.
func (d *document) uuid(field string) string {
	v := d.fields[field]
	if absent(v) {
		return ""
	}
	subtype, data, ok := v.BinaryOK()
	known := subtype == bson.TypeBinaryUUID || subtype == bson.TypeBinaryUUIDOld
	if !ok || len(data) != 16 || !known {
		d.fail(field, "must be a UUID, not %s", describe(v))
		return ""
	}
	return string(data)
}

func absent(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}

func describe(v bson.RawValue) string {
	if v.Type == 0 {
		return "missing"
	}
	return v.Type.String()
}

// idText is an _id for people and for comparing: a string as it is, all else as extended JSON.
func idText(id bson.RawValue) string {
	if s, ok := id.StringValueOK(); ok {
		return s
	}
	if id.Type == 0 {
		return ""
	}
	return id.String()
}

// within reads the fields of a document inside of d; errors name them as "<field>.<inner>".
func (d *document) within(field string, raw bson.Raw) *document {
	in := &document{collection: d.collection, id: d.id, fields: map[string]bson.RawValue{}}
	in.prefix = field + "."
	elements, _ := raw.Elements() // cannot fail, the whole is valid
	for _, e := range elements {
		in.fields[e.Key()] = e.Value()
	}
	return in
}
