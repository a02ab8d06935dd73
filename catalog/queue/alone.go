package queue

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file has the transitions of a lock that one session has to itself. Some have a command of their own
// in mongocatalog, of which these say what its condition means.

// Acquire is the transition of [catalog.Queues.Enter] by [catalog.Claim]. A lock that somebody shared, and which a
// manager left free that knows nothing of sharers, is not to be had so: Enter takes it.
func Acquire(l catalog.Lock, sharers bool, g catalog.Request, now time.Time) (Change, error) {
	if l.Held || len(l.Waiters) > 0 || sharers {
		return Change{}, catalog.ErrNotFree
	}
	return taken(l, g, now), nil
}

// Overtake is the transition of [catalog.Locks.Overtake].
func Overtake(l catalog.Lock, g catalog.Request, from catalog.Holder, now time.Time) (Change, error) {
	if !heldAlone(l, from.TS) || !from.Watched(l) || len(l.Waiters) > 0 {
		return Change{}, catalog.ErrNoMatch
	}
	return taken(l, g, now), nil
}

// Confirm is the transition of [catalog.Locks.Confirm].
func Confirm(l catalog.Lock, g catalog.Request) (Change, error) {
	if !l.Held || l.TS != g.TS {
		return Change{}, catalog.ErrNoMatch
	}
	return Change{Set: bson.D{{Key: "who", Value: g.Who}}}, nil
}

// SeedFence is the transition of [catalog.Locks.SeedFence].
func SeedFence(l catalog.Lock, s catalog.Session, atLeast int64) (Change, error) {
	if !l.Held || l.TS != s.TS {
		return Change{}, catalog.ErrNoMatch
	}
	return Change{Set: bson.D{{Key: "fence", Value: max(l.Fence, atLeast)}}}, nil
}

// PutFirst is the transition of [catalog.Locks.PutFirst].
func PutFirst(l catalog.Lock, s catalog.Session, to bson.ObjectID) (Change, error) {
	at := slices.IndexFunc(l.Waiters, func(p catalog.Participant) bool { return p.TS == to })
	if !heldAlone(l, s.TS) || at < 0 {
		return Change{}, catalog.ErrNoMatch
	}
	line := slices.Concat(l.Waiters[at:at+1], l.Waiters[:at], l.Waiters[at+1:])
	return Change{Set: bson.D{{Key: "waiters", Value: parties(line, false)}}}, nil
}

// RequestYield is the transition of [catalog.Locks.RequestYield].
func RequestYield(l catalog.Lock, by, why string, now time.Time) (Change, error) {
	if !heldAlone(l, l.TS) {
		return Change{}, catalog.ErrNoMatch
	}
	return Change{Set: bson.D{{Key: "yield", Value: bson.D{
		{Key: "ts", Value: l.TS}, {Key: "by", Value: by}, {Key: "why", Value: why},
		{Key: "at", Value: bson.NewDateTimeFromTime(now)},
	}}}}, nil
}

// Break is the transition of [catalog.Operator.Break]. Of a document whose session nobody can name l
// has the session ts already.
func Break(l catalog.Lock, sharers bool, s catalog.Session, fence int64, ts bson.ObjectID, why string) (
	Change, error,
) {
	if !l.Held || l.Fence != fence || len(l.Waiters) > 0 || sharers ||
		!s.TS.IsZero() && l.TS != s.TS {
		return Change{}, catalog.ErrNoMatch
	}
	return Change{Set: bson.D{
		{Key: "fence", Value: l.Fence + 1},
		{Key: "state", Value: int32(0)},
		{Key: "ts", Value: ts},
		{Key: "why", Value: "broken: " + why},
	}}, nil
}

func heldAlone(l catalog.Lock, ts bson.ObjectID) bool {
	return l.Held && len(l.Sharers) == 0 && l.TS == ts
}

// taken is what an acquisition and a takeover write.
func taken(l catalog.Lock, g catalog.Request, now time.Time) Change {
	return Change{Set: bson.D{
		{Key: "fence", Value: l.Fence + 1},
		{Key: "process", Value: g.Process},
		{Key: "state", Value: int32(1)},
		{Key: "takeoverMS", Value: g.Takeover.Milliseconds()},
		{Key: "ts", Value: g.TS},
		{Key: "when", Value: bson.NewDateTimeFromTime(now)},
		{Key: "who", Value: g.Who},
		{Key: "why", Value: g.Why},
	}}
}
