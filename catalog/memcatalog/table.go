package memcatalog

import (
	"bytes"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A table is one collection, by the bytes of the _id. A stored document is never changed in
// place, only replaced, so that readers may keep what they got.
type table map[string]bson.Raw

// keyOf returns the key of a document: the type of its _id and the bytes of its value.
func keyOf(raw bson.Raw) (string, bool) {
	v, err := raw.LookupErr("_id")
	if err != nil {
		return "", false
	}
	return string(append([]byte{byte(v.Type)}, v.Value...)), true
}

func stringKey(id string) string {
	v := text(id)
	return string(append([]byte{byte(v.Type)}, v.Value...))
}

// sorted returns the documents in the server's order of their _ids, which for strings is the
// order of their bytes.
func (t table) sorted() []bson.Raw {
	return slices.SortedFunc(maps.Values(t), func(a, b bson.Raw) int {
		x, y := a.Lookup("_id"), b.Lookup("_id")
		if rx, ry := rank(x.Type), rank(y.Type); rx != ry {
			return rx - ry
		}
		if x.Type == bson.TypeString && y.Type == bson.TypeString {
			return bytes.Compare([]byte(x.StringValue()), []byte(y.StringValue()))
		}
		return bytes.Compare(x.Value, y.Value)
	})
}

// rank is the place of a type in the server's order of comparison. Values of one foreign type
// come in some fixed order.
func rank(t bson.Type) int {
	order := []bson.Type{
		bson.TypeMinKey, bson.TypeNull, bson.TypeInt32, bson.TypeString, bson.TypeEmbeddedDocument,
		bson.TypeArray, bson.TypeBinary, bson.TypeObjectID, bson.TypeBoolean, bson.TypeDateTime,
		bson.TypeTimestamp, bson.TypeRegex, bson.TypeMaxKey,
	}
	switch t {
	case bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		t = bson.TypeInt32
	case bson.TypeSymbol:
		t = bson.TypeString
	}
	if at := slices.Index(order, t); at >= 0 {
		return at
	}
	return len(order)
}

// holders is the index of the sessions that hold locks, by process. Documents that cannot be
// understood are not in it, nor are holders without a process.
type holders struct {
	parties map[string][]catalog.Party // by the key of the lock document
	holding map[string]*holding
}

type holding struct {
	sessions map[catalog.Session]int64 // with their fences
	fences   int64                     // their sum, wrapping around
}

func newHolders() holders {
	return holders{parties: map[string][]catalog.Party{}, holding: map[string]*holding{}}
}

// remember puts a lock in, in place of what the document said before.
func (h holders) remember(key string, name string, l catalog.Lock) {
	h.forget(key, name)
	for _, p := range l.Holders() {
		if p.Process == "" {
			continue
		}
		of := h.holding[p.Process]
		if of == nil {
			of = &holding{sessions: map[catalog.Session]int64{}}
			h.holding[p.Process] = of
		}
		s := catalog.Session{Name: name, TS: p.TS}
		if _, twice := of.sessions[s]; twice {
			continue // a foreign hand wrote it so
		}
		h.parties[key] = append(h.parties[key], p)
		of.sessions[s] = p.Fence
		of.fences += p.Fence
	}
}

func (h holders) forget(key, name string) {
	for _, p := range h.parties[key] {
		of := h.holding[p.Process]
		s := catalog.Session{Name: name, TS: p.TS}
		of.fences -= of.sessions[s]
		delete(of.sessions, s)
		if len(of.sessions) == 0 {
			delete(h.holding, p.Process)
		}
	}
	delete(h.parties, key)
}

func clone(raw bson.Raw) bson.Raw { return slices.Clone(raw) }
