package transition

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Decide parses a lock document, and returns the lock and the change that the transition makes. If
// the document does not exist, raw is nil. Every store applies transitions with Decide. Errors:
//   - the errors of the transition;
//   - ErrNoMatch for a missing document, except for Enter;
//   - *MalformedError, with the exceptions in [catalog.Locks].
func Decide(raw bson.Raw, t catalog.Transition, now time.Time) (
	l catalog.Lock, c catalog.Change, err error,
) {
	l.Name = t.On()
	if _, makes := t.(Enter); raw == nil && !makes {
		return l, c, catalog.ErrNoMatch
	}
	if b, ok := t.(Break); ok {
		if b.New.IsZero() {
			b.New = bson.NewObjectID()
		}
		if _, bad := catalog.ParseLock(raw); b.TS.IsZero() && bad != nil { // ignore the session
			raw = withSession(raw, b.New)
		}
		t = b
	}
	if raw != nil {
		var bad *catalog.MalformedError
		if l, bad = catalog.ParseLock(raw); bad != nil {
			c, err = damaged(raw, t, bad)
			return l, c, err
		}
	}
	if e, ok := t.(Enter); ok && e.How == catalog.TryPlain {
		if l.Held || len(l.Waiters) > 0 || l.OldSharers {
			return l, c, catalog.ErrNotFree
		}
		return l, taken(l, e.Request, now), nil
	}
	c, err = t.Next(l, now)
	return l, c, err
}

// damaged returns the change of a document that [catalog.ParseLock] rejects. The argument why is
// the error of ParseLock.
func damaged(raw bson.Raw, t catalog.Transition, why error) (catalog.Change, error) {
	switch t := t.(type) {
	case Leave:
		return leaveDamaged(raw, t.TS, why)
	case Enter:
		if t.How == catalog.TryPlain {
			return catalog.Change{}, catalog.ErrNotFree
		}
	}
	return catalog.Change{}, why
}

// leaveDamaged frees a lock that the session holds alone. If the document has sharers, waiters or a
// mode for several holders, leaveDamaged returns why, because an operator must first repair the
// document. If the session is not the holder, leaveDamaged returns ErrNoMatch.
func leaveDamaged(raw bson.Raw, ts bson.ObjectID, why error) (catalog.Change, error) {
	sharers, waiter := raw.Lookup("sharers"), raw.Lookup("waiters", "0")
	if sharers.Type == bson.TypeArray {
		sharers = raw.Lookup("sharers", "0")
	}
	mode, _ := raw.Lookup("mode").StringValueOK()
	if sharers.Type != 0 && sharers.Type != bson.TypeNull || waiter.Type != 0 ||
		mode == string(catalog.Shared) || mode == string(catalog.Permit) {
		return catalog.Change{}, why
	}
	holder, _ := raw.Lookup("ts").ObjectIDOK()
	state, isNumber := raw.Lookup("state").AsFloat64OK()
	if holder != ts || isNumber && state == 0 {
		return catalog.Change{}, fmt.Errorf("%w: %v", catalog.ErrNoMatch, why)
	}
	return catalog.Change{Set: bson.D{{Key: "state", Value: int32(0)}}}, nil
}

func withSession(raw bson.Raw, ts bson.ObjectID) bson.Raw {
	var doc bson.D
	if bson.Unmarshal(raw, &doc) != nil {
		return raw // raw is malformed
	}
	doc = slices.DeleteFunc(doc, func(e bson.E) bool { return e.Key == "ts" })
	changed, err := bson.Marshal(append(doc, bson.E{Key: "ts", Value: ts}))
	if err != nil {
		return raw
	}
	return changed
}

// Under returns the session of a transition that may be part of a transaction, see
// [catalog.Transactions]. For any other transition, ok is false.
func Under(t catalog.Transition) (s catalog.Session, ok bool) {
	switch t := t.(type) {
	case Renew:
		return t.Session, true
	case PutFirst:
		return t.Session, true
	}
	return s, false
}
