package memcatalog

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"mongodlm/catalog"
)

// valueOf returns v as BSON. BSON must be able to represent v.
func valueOf(v any) bson.RawValue {
	t, value, _ := bson.MarshalValue(v)
	return bson.RawValue{Type: t, Value: value}
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
	start, doc := bsoncore.AppendDocumentStart(make([]byte, 0, 512))
	for _, e := range f {
		v := bsoncore.Value{Type: bsoncore.Type(e.value.Type), Data: e.value.Value}
		doc = bsoncore.AppendValueElement(doc, e.key, v)
	}
	doc, _ = bsoncore.AppendDocumentEnd(doc, start)
	return bson.Raw(doc)
}

// index returns the index of the field with the given name, or -1.
func (f fields) index(key string) int {
	return slices.IndexFunc(f, func(f field) bool { return f.key == key })
}

func (f fields) get(key string) bson.RawValue {
	if i := f.index(key); i >= 0 {
		return f[i].value
	}
	return bson.RawValue{} // missing
}

// put sets a field. It may change f.
func (f fields) put(key string, v bson.RawValue) fields {
	if i := f.index(key); i >= 0 {
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

// without returns the fields other than key. It may change f.
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
