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

// holders is the index of held locks by process. Documents that cannot be understood are not in
// it, nor are those without a process.
type holders map[string]*holding

type holding struct {
	sessions map[string]catalog.HeldSession // by the name of the lock
	fences   int64                          // sum of their fences, wrapping around
}

func (h holders) remember(raw bson.Raw) {
	l, ok := heldLock(raw)
	if !ok {
		return
	}
	p := h[l.Process]
	if p == nil {
		p = &holding{sessions: map[string]catalog.HeldSession{}}
		h[l.Process] = p
	}
	p.sessions[l.Name] = catalog.HeldSession{Session: l.Session(), Fence: l.Fence}
	p.fences += l.Fence
}

// forget takes out what remember put in for the same document; nil is allowed.
func (h holders) forget(raw bson.Raw) {
	l, ok := heldLock(raw)
	if !ok {
		return
	}
	p := h[l.Process]
	delete(p.sessions, l.Name)
	p.fences -= l.Fence
	if len(p.sessions) == 0 {
		delete(h, l.Process)
	}
}

func heldLock(raw bson.Raw) (catalog.Lock, bool) {
	if raw == nil {
		return catalog.Lock{}, false
	}
	l, bad := catalog.ParseLock(raw)
	return l, bad == nil && l.Held && l.Process != ""
}

func clone(raw bson.Raw) bson.Raw { return slices.Clone(raw) }
