package memcatalog

import (
	"bytes"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A table is a collection. The key is the document's _id, see keyOf. A stored document is never
// changed in place, only replaced, so that readers may keep it.
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

// sorted returns the documents in the server's order of _id. Strings are in the order of their
// bytes.
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

// rank returns the place of a type in the server's order of comparison. Unlisted types come last.
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

// standings is the index of sessions that hold or wait for locks, by process. It omits malformed
// documents and holders without a process.
type standings struct {
	locks map[string]catalog.Lock // by the document's key; never changed in place
	of    map[string]*standing
}

// A standing has the sessions of one process.
type standing struct {
	holds map[catalog.Session]bool
	waits map[catalog.Session]bool
}

func newStandings() standings {
	return standings{locks: map[string]catalog.Lock{}, of: map[string]*standing{}}
}

// remember indexes a lock, and removes its earlier state from the index.
func (s standings) remember(key string, l catalog.Lock) {
	s.forget(key)
	l.Grants, l.Leases = slices.Clip(l.Grants), slices.Clip(l.Leases)
	s.locks[key] = l
	for _, p := range l.Holders() {
		if of := s.standing(p.Process); p.Process != "" {
			of.holds[catalog.Session{Name: l.Name, TS: p.TS}] = true
		}
	}
	for _, p := range l.Waiters {
		s.standing(p.Process).waits[catalog.Session{Name: l.Name, TS: p.TS}] = true
	}
}

// standing returns the standing of a process. It creates a missing one.
func (s standings) standing(process string) *standing {
	of := s.of[process]
	if of == nil && process != "" {
		of = &standing{holds: map[catalog.Session]bool{}, waits: map[catalog.Session]bool{}}
		s.of[process] = of
	}
	return of
}

func (s standings) forget(key string) {
	l := s.locks[key]
	for _, parties := range [][]catalog.Participant{l.Holders(), l.Waiters} {
		for _, p := range parties {
			of, session := s.of[p.Process], catalog.Session{Name: l.Name, TS: p.TS}
			if of == nil {
				continue
			}
			delete(of.holds, session)
			delete(of.waits, session)
			if len(of.holds)+len(of.waits) == 0 {
				delete(s.of, p.Process)
			}
		}
	}
	delete(s.locks, key)
}

// same reports whether no write came between the two reads of a key that returned a and b.
func same(a, b bson.Raw) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

func clone(raw bson.Raw) bson.Raw { return slices.Clone(raw) }
