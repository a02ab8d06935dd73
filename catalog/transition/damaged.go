package transition

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// leaveDamaged is Leave of a document that [catalog.ParseLock] does not understand, since a hand or
// a newer version has written it: the session's own entries are taken out, and the lock is free
// only if nobody else can be seen to hold it. Nobody is granted it: the next waiter has it when the
// document is repaired.
//
// Errors: why, which says what is wrong with the document, when nobody can tell who else holds the
// lock; ErrNoMatch when the session stands nowhere in the document.
func leaveDamaged(raw bson.Raw, ts bson.ObjectID, why error) (catalog.Change, error) {
	sharers, shares := without(raw.Lookup("sharers"), ts)
	waiters, waits := without(raw.Lookup("waiters"), ts)
	held := !isZero(raw.Lookup("state"))
	top := held && sessionOf(raw) == ts
	next := coHolder(raw, sharers)
	var c catalog.Change
	switch {
	case !top && !shares && !waits:
		return c, fmt.Errorf("%w: %v", catalog.ErrNoMatch, why)
	case top && next == nil && unreadable(raw):
		return c, why
	case top && next == nil:
		c.Set = bson.D{{Key: "state", Value: int32(0)}}
		if !exclusive(raw) {
			c.Unset = []string{"limit", "mode"}
		}
	case top:
		for _, field := range []string{"process", "takeoverMS", "ts", "when", "who", "why"} {
			put(&c, field, next.Lookup(field))
		}
	}
	if shares {
		put(&c, "sharers", sharers)
	}
	if waits {
		put(&c, "waiters", waiters)
	}
	slices.SortFunc(c.Set, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	return c, nil
}

// put sets a field, or removes it when the value is that of a missing field or an empty list.
func put(c *catalog.Change, field string, value any) {
	v, isValue := value.(bson.RawValue)
	list, isList := value.(bson.A)
	if isValue && v.Type == 0 || isList && len(list) == 0 {
		c.Unset = append(c.Unset, field)
		return
	}
	c.Set = append(c.Set, bson.E{Key: field, Value: value})
}

// sessionOf is the session of a document or an entry, zero when it has none that can be read.
func sessionOf(entry bson.Raw) bson.ObjectID {
	ts, _ := entry.Lookup("ts").ObjectIDOK()
	return ts
}

// without returns the entries of a list that are not those of a session, and whether there was one
// of it.
func without(list bson.RawValue, ts bson.ObjectID) (rest bson.A, stood bool) {
	entries, _ := list.ArrayOK()
	values, _ := entries.Values()
	for _, v := range values {
		if entry, ok := v.DocumentOK(); ok && sessionOf(entry) == ts {
			stood = true
			continue
		}
		rest = append(rest, v)
	}
	return rest, stood
}

// coHolder returns the first of the other sharers that has a session, nil when there is none.
// Sharers of whom the first is not the holder hold nothing beside a foreign holder, whose state is
// not 1, and beside an exclusive one.
func coHolder(raw bson.Raw, others bson.A) bson.Raw {
	list, _ := raw.Lookup("sharers").ArrayOK()
	first, _ := bson.Raw(list).Lookup("0").DocumentOK()
	if ts := sessionOf(first); !ts.IsZero() && ts != sessionOf(raw) && (!ours(raw) || exclusive(raw)) {
		return nil
	}
	for _, v := range others {
		if entry, ok := v.(bson.RawValue).DocumentOK(); ok && !sessionOf(entry).IsZero() {
			return entry
		}
	}
	return nil
}

// unreadable reports whether others may hold the lock that the document does not show: a mode has
// sharers, but in no list, or in state 1 in an empty one or none.
func unreadable(raw bson.Raw) bool {
	sharers := raw.Lookup("sharers")
	list, isList := sharers.ArrayOK()
	values, _ := list.Values()
	mode, _ := raw.Lookup("mode").StringValueOK()
	several := mode == string(catalog.Shared) || mode == string(catalog.Permit)
	return !exclusive(raw) && !absent(sharers) && !isList || ours(raw) && several && len(values) == 0
}

// exclusive reports whether the mode is that of one holder.
func exclusive(raw bson.Raw) bool {
	mode := raw.Lookup("mode")
	text, isText := mode.StringValueOK()
	return absent(mode) || isText && text == string(catalog.Exclusive)
}

// ours reports whether the state is that of a lock that this package has granted.
func ours(raw bson.Raw) bool {
	state := raw.Lookup("state")
	n, isInt := state.AsInt64OK()
	f, isDouble := state.DoubleOK()
	return isInt && !isDouble && n == 1 || isDouble && f == 1
}

func absent(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}

// isZero reports whether a state says that nobody holds the lock.
func isZero(v bson.RawValue) bool {
	n, ok := v.AsInt64OK()
	f, isDouble := v.DoubleOK()
	return ok && !isDouble && n == 0 || isDouble && f == 0
}
