package transition

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Confirm determines whether an exclusive acquisition with an unknown outcome was applied. If the
// session is not the holder in the top-level fields, Confirm returns ErrNoMatch. Confirm is a
// write, so its success is durable.
type Confirm struct{ catalog.Request }

func (t Confirm) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	if !l.Held || l.TS != t.TS {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{{Key: "who", Value: t.Who}}}, nil
}

// SeedFence raises the fence to AtLeast if the fence is smaller. SeedFence returns ErrNoMatch if
// the session does not hold the lock, or holds it as a sharer other than the first.
type SeedFence struct {
	catalog.Session
	AtLeast int64
}

func (t SeedFence) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	if !l.Held || l.TS != t.TS {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{{Key: "fence", Value: max(l.Fence, t.AtLeast)}}}, nil
}

// PutFirst moves the waiter To to the front of the queue. The next Leave then grants the lock to
// that waiter. PutFirst changes only the queue, and may be repeated. If the session does not hold
// the lock exclusively, or if To is not in the queue, PutFirst returns ErrNoMatch. It may be part
// of a transaction, see [catalog.Transactions].
type PutFirst struct {
	catalog.Session
	To bson.ObjectID
}

func (t PutFirst) Next(l catalog.Lock, _ time.Time) (catalog.Change, error) {
	at := slices.IndexFunc(l.Waiters, func(p catalog.Participant) bool { return p.TS == t.To })
	if !heldAlone(l, t.TS) || at < 0 {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	waiters := slices.Concat(l.Waiters[at:at+1], l.Waiters[:at], l.Waiters[at+1:])
	return catalog.Change{Set: bson.D{{Key: "waiters", Value: documents(waiters, false)}}}, nil
}

// RequestYield asks the exclusive holder to release the lock. The request is valid only for the
// session of this holder, not for a later holder. If the lock has no exclusive holder, RequestYield
// returns ErrNoMatch.
type RequestYield struct{ Name, By, Why string }

func (t RequestYield) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	if !heldAlone(l, l.TS) {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return catalog.Change{Set: bson.D{{Key: "yield", Value: bson.D{
		{Key: "ts", Value: l.TS}, {Key: "by", Value: t.By}, {Key: "why", Value: t.Why},
		{Key: "at", Value: bson.NewDateTimeFromTime(now)},
	}}}}, nil
}

// Break frees a lock if the holder's session and fence have not changed since the operator read
// them. It writes state 0, a new ts and fence + 1. So later writes of the old session do not match.
// If Session.TS is zero, Break does not compare the session. It then also frees a lock whose
// document is malformed only because of the field ts. Break returns ErrNoMatch in these cases:
//   - The lock is free.
//   - The session or the fence differs.
//   - The lock has waiters or sharers, which may be outdated. Use [Evict] for such a lock.
type Break struct {
	catalog.Session
	Fence int64
	Why   string
	// New is the ts that Break writes. If New is zero, the store makes an ObjectID.
	New bson.ObjectID
}

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

// Renew begins or renews the lease of a session that holds the lock in any mode. It writes the
// renewal's number, lifetime and local time, and the server's clock. It removes the leases of
// former holders. If the server applies the same Renew twice, the second one succeeds too. If the
// session does not hold the lock, or if [catalog.Renewal.Supersedes] is false for its lease, Renew
// returns ErrNoMatch. It may be part of a transaction, see [catalog.Transactions].
type Renew struct{ catalog.Renewal }

func (t Renew) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	r := t.Renewal
	seen, has := l.LeaseOf(r.TS)
	if _, holds := l.HeldBy(r.TS); !holds || has && !r.Supersedes(seen) {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	leases := bson.A{}
	for _, other := range l.Leases {
		if other.TS != r.TS {
			leases = append(leases, lease(other))
		}
	}
	return catalog.Change{Set: bson.D{{Key: "leases", Value: append(leases, lease(catalog.Lease{
		TS: r.TS, Life: r.Life, Number: r.Number, At: now, Local: r.Local,
	}))}}}, nil
}

// LeaseMS returns a lifetime in milliseconds, rounded up.
func LeaseMS(life time.Duration) int64 {
	return (life + time.Millisecond - time.Nanosecond).Milliseconds()
}

func lease(l catalog.Lease) bson.D {
	return bson.D{
		{Key: "ts", Value: l.TS}, {Key: "ms", Value: LeaseMS(l.Life)}, {Key: "n", Value: l.Number},
		{Key: "at", Value: bson.NewDateTimeFromTime(l.At)},
		{Key: "local", Value: bson.NewDateTimeFromTime(l.Local)},
	}
}
