package transition

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file has the transitions of a lock that one session has to itself. Some have a command of
// their own in mongocatalog, of which these say what its condition means.

// Confirm asks for the outcome of an acquisition that is unknown. It is a write that names the
// request's session, so that what it finds is durable. Errors: ErrNoMatch when the store does not
// hold the lock for it now.
type Confirm struct{ catalog.Request }

// Next implements [catalog.Transition].
func (t Confirm) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	if !l.Held || l.TS != t.TS {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{{Key: "who", Value: t.Who}}}, nil
}

// SeedFence raises the fence of a lock that the session holds to AtLeast if it is lower. Errors:
// ErrNoMatch when the session does not hold it any more.
type SeedFence struct {
	catalog.Session
	AtLeast int64
}

// Next implements [catalog.Transition].
func (t SeedFence) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	if !l.Held || l.TS != t.TS {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{{Key: "fence", Value: max(l.Fence, t.AtLeast)}}}, nil
}

// PutFirst puts the waiter To at the front of the line of a lock that the session holds alone, so
// that Leave grants it the lock next. It changes the line and nothing else; repeating it is
// harmless. Errors: ErrNoMatch when the session does not hold the lock alone, or To does not wait
// for it; see [catalog.Transactions] for a part of one.
type PutFirst struct {
	catalog.Session
	To bson.ObjectID
}

// Next implements [catalog.Transition].
func (t PutFirst) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	at := slices.IndexFunc(l.Waiters, func(p catalog.Participant) bool { return p.TS == t.To })
	if !heldAlone(l, t.TS) || at < 0 {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	line := slices.Concat(l.Waiters[at:at+1], l.Waiters[:at], l.Waiters[at+1:])
	return catalog.Change{Set: bson.D{{Key: "waiters", Value: parties(line, false)}}}, nil
}

// RequestYield writes into a lock that its only holder is asked to give it up. The request names
// the holder's session and is of no concern to the next. Errors: ErrNoMatch when nobody holds the
// lock alone.
type RequestYield struct{ Name, By, Why string }

// Next implements [catalog.Transition].
func (t RequestYield) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	if !heldAlone(l, l.TS) {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{{Key: "yield", Value: bson.D{
		{Key: "ts", Value: l.TS}, {Key: "by", Value: t.By}, {Key: "why", Value: t.Why},
		{Key: "at", Value: bson.NewDateTimeFromTime(now)},
	}}}}, nil
}

// Break frees a lock that the session still holds with the fence that the operator saw: state 0, a
// new ts, fence + 1, so that the old session matches nothing any more. Where there are waiters or
// sharers [Evict] is the way. A zero session is for a document that has none, or none that can be
// understood, and nothing else wrong with it. Errors: ErrNoMatch.
type Break struct {
	catalog.Session
	Fence int64
	Why   string
	// New is the new session; zero for one that the store makes.
	New bson.ObjectID
}

// Next implements [catalog.Transition].
func (t Break) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	if !l.Held || l.Fence != t.Fence || len(l.Waiters)+len(l.Sharers) > 0 || l.OldSharers ||
		!t.TS.IsZero() && l.TS != t.TS {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{
		{Key: "fence", Value: l.Fence + 1},
		{Key: "state", Value: int32(0)},
		{Key: "ts", Value: t.New},
		{Key: "why", Value: "broken: " + t.Why},
	}}, nil
}

func heldAlone(l catalog.Lock, ts bson.ObjectID) bool {
	return l.Held && len(l.Sharers) == 0 && l.TS == ts
}

// taken is the change by which a request acquires a lock.
func taken(l catalog.Lock, r catalog.Request, now time.Time) catalog.Change {
	return catalog.Change{Set: bson.D{
		{Key: "fence", Value: l.Fence + 1},
		{Key: "process", Value: r.Process},
		{Key: "state", Value: int32(1)},
		{Key: "takeoverMS", Value: r.Takeover.Milliseconds()},
		{Key: "ts", Value: r.TS},
		{Key: "when", Value: bson.NewDateTimeFromTime(now)},
		{Key: "who", Value: r.Who},
		{Key: "why", Value: r.Why},
	}}
}
