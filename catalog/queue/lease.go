package queue

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Renew is the transition of [catalog.Locks.Renew]. The leases of those who hold the lock no longer go.
func Renew(l catalog.Lock, r catalog.Renewal, now time.Time) (Change, error) {
	seen, has := l.LeaseOf(r.TS)
	if _, holds := l.HeldBy(r.TS); !holds || has && !r.Supersedes(seen) {
		return Change{}, catalog.ErrNoMatch
	}
	leases := bson.A{}
	for _, other := range l.Leases {
		if other.TS != r.TS {
			leases = append(leases, lease(other))
		}
	}
	return Change{Set: bson.D{{Key: "leases", Value: append(leases, lease(catalog.Lease{
		TS: r.TS, Life: r.Life, Number: r.Number, At: now, Local: r.Local,
	}))}}}, nil
}

// LeaseMS is a life as it is written: never shorter than the holder counts it.
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

// Evict is the transition of [catalog.Queues.Evict].
func Evict(l catalog.Lock, dead catalog.Holder, now time.Time, evidence string) (Change, error) {
	p, waits := l.WaitedBy(dead.TS)
	if dead.Waits && !waits {
		return Change{}, catalog.ErrNoMatch
	}
	if !dead.Watched(l) && !(waits && p.Process == dead.Process) {
		return Change{}, catalog.ErrNoMatch
	}
	return Leave(l, dead.TS, now, evidence)
}
