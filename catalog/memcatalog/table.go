package memcatalog

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A table holds the documents of a collection, by the keys that keyOf returns.
type table map[string]*stored

// stored holds a document and its parsed form. Readers keep pointers to stored documents, so a
// stored document is never changed. A write replaces it.
type stored struct {
	raw  bson.Raw
	lock catalog.Lock            // of a document in the collection locks
	bad  *catalog.MalformedError // set if a document in locks is malformed
	ping catalog.PingState       // of a document in lockpings
}

func storedLock(raw bson.Raw) *stored {
	l, bad := catalog.ParseLock(raw)
	l.Grants, l.Leases = slices.Clip(l.Grants), slices.Clip(l.Leases)
	return &stored{raw: raw, lock: l, bad: bad}
}

func storedPing(raw bson.Raw) *stored { return &stored{raw: raw, ping: catalog.PingStateOf(raw)} }

func (s *stored) document() bson.Raw {
	if s == nil {
		return nil
	}
	return s.raw
}

func (s *stored) fields() fields { return take(s.document()) }

// keyOf returns the key of a document in a table: the type and the value of its _id.
func keyOf(raw bson.Raw) (key string, ok bool) {
	v, err := raw.LookupErr("_id")
	if id, isText := v.StringValueOK(); isText {
		return stringKey(id), true
	}
	return string(append([]byte{byte(v.Type)}, v.Value...)), err == nil
}

func stringKey(id string) string { return string(rune(bson.TypeString)) + id }

// sorted returns the documents in the order of _id. Ids of different types are in the order of the
// type numbers of BSON.
func (t table) sorted() []*stored {
	return slices.SortedFunc(maps.Values(t), func(a, b *stored) int {
		x, y := a.raw.Lookup("_id"), b.raw.Lookup("_id")
		if x.Type == bson.TypeString && y.Type == bson.TypeString {
			return cmp.Compare(x.StringValue(), y.StringValue())
		}
		return cmp.Or(cmp.Compare(x.Type, y.Type), bytes.Compare(x.Value, y.Value))
	})
}
