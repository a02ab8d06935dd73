package transition

import (
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// leaveDamaged is Leave for a document that [catalog.ParseLock] rejects. An operator or a newer
// version wrote such a document. leaveDamaged removes the session, and frees the lock if there is
// no other holder. It does not grant the lock to a waiter. For that an operator must repair the
// document.
//
// If leaveDamaged cannot determine the other holders, it returns the parameter why, which is the
// error of ParseLock. It returns ErrNoMatch if the session is not in the document.
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

// sessionOf returns the session of a document or of an element of sharers or waiters. It is zero if
// the session is missing or invalid.
func sessionOf(entry bson.Raw) bson.ObjectID {
	ts, _ := entry.Lookup("ts").ObjectIDOK()
	return ts
}

// The function without returns the elements of a list that do not have the session. The result
// found reports whether an element had it.
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

// coHolder returns the first element of others that has a session; nil if there is none. If the
// first sharer of the document is not the holder in its top-level fields, the sharers may be
// outdated. Outdated sharers are ignored if the mode is exclusive. They are also ignored if the
// state is not 1, because then a foreign manager acquired the lock.
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

// unreadable reports whether holders of the lock may be missing from the document. They may be
// missing if the mode is not exclusive and the field sharers has a value that is not a list. In
// state 1 and mode shared or permit, they are also missing if sharers is absent or empty.
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

// stateIs reports whether the state is the given number. State 0 is a free lock, and state 1 a lock
// that this module holds.
func stateIs(raw bson.Raw, want int64) bool {
	state := raw.Lookup("state")
	f, isDouble := state.DoubleOK()
	n, isInt := state.AsInt64OK()
	return isDouble && f == float64(want) || !isDouble && isInt && n == want
}

func absent(v bson.RawValue) bool {
	return v.Type == 0 || v.Type == bson.TypeNull || v.Type == bson.TypeUndefined
}
