package transition

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// leaveDamaged applies Leave to a document that [catalog.ParseLock] rejects. It removes the
// session. If there is no other holder, it frees the lock. It does not grant the lock to a waiter,
// because an operator must first repair the document.
//
// If leaveDamaged cannot determine the other holders, it returns the error of ParseLock, which the
// caller passes as why. If the session is not in the document, it returns ErrNoMatch.
func leaveDamaged(raw bson.Raw, ts bson.ObjectID, why error) (catalog.Change, error) {
	sharers, shares := without(raw.Lookup("sharers"), ts)
	waiters, waits := without(raw.Lookup("waiters"), ts)
	held := !stateIs(raw, 0)
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
			v := next.Lookup(field)
			put(&c, field, v, v.Type != 0)
		}
	}
	if shares {
		put(&c, "sharers", sharers, len(sharers) > 0)
	}
	if waits {
		put(&c, "waiters", waiters, len(waiters) > 0)
	}
	slices.SortFunc(c.Set, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	return c, nil
}

func sessionOf(entry bson.Raw) bson.ObjectID {
	ts, _ := entry.Lookup("ts").ObjectIDOK()
	return ts
}

// without returns the elements of a list except those of the given session. found reports whether
// the session had an element.
func without(list bson.RawValue, ts bson.ObjectID) (rest bson.A, found bool) {
	entries, _ := list.ArrayOK()
	values, _ := entries.Values()
	for _, v := range values {
		if entry, ok := v.DocumentOK(); ok && sessionOf(entry) == ts {
			found = true
			continue
		}
		rest = append(rest, v)
	}
	return rest, found
}

// coHolder returns the first element of others that has a session, or nil. It ignores the elements
// if the field sharers is invalid. That field is invalid if its first sharer is not the holder in
// the top-level fields, and the mode is exclusive or the state is not 1. A state other than 1 means
// that a foreign manager acquired the lock.
func coHolder(raw bson.Raw, others bson.A) bson.Raw {
	list, _ := raw.Lookup("sharers").ArrayOK()
	first, _ := bson.Raw(list).Lookup("0").DocumentOK()
	if ts := sessionOf(first); !ts.IsZero() && ts != sessionOf(raw) &&
		(!stateIs(raw, 1) || exclusive(raw)) {
		return nil
	}
	for _, v := range others {
		if entry, ok := v.(bson.RawValue).DocumentOK(); ok && !sessionOf(entry).IsZero() {
			return entry
		}
	}
	return nil
}

// unreadable reports whether the lock may have holders that the document does not contain. There
// are two cases:
//   - The mode is not exclusive, and the field sharers exists but is not a list.
//   - The state is 1, the mode is shared or permit, and sharers is absent or empty.
func unreadable(raw bson.Raw) bool {
	sharers := raw.Lookup("sharers")
	list, isList := sharers.ArrayOK()
	values, _ := list.Values()
	mode, _ := raw.Lookup("mode").StringValueOK()
	several := mode == string(catalog.Shared) || mode == string(catalog.Permit)
	return !exclusive(raw) && !absent(sharers) && !isList ||
		stateIs(raw, 1) && several && len(values) == 0
}

func exclusive(raw bson.Raw) bool {
	mode := raw.Lookup("mode")
	text, isText := mode.StringValueOK()
	return absent(mode) || isText && text == string(catalog.Exclusive)
}

func stateIs(raw bson.Raw, want int64) bool {
	state := raw.Lookup("state")
	f, isDouble := state.DoubleOK()
	n, isInt := state.AsInt64OK()
	return isDouble && f == float64(want) || !isDouble && isInt && n == want
}

func absent(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}
