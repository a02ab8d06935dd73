package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Renew begins or renews the lease of a session that holds the lock, alone or with others: it
// writes the number of the renewal, its life and its local time, and the server's clock. The same
// renewal twice is acknowledged twice. The leases of those who hold the lock no longer go. Errors:
// ErrNoMatch when the session does not hold the lock or a lease is there that the renewal does not
// supersede; see [catalog.Transactions] for a part of one.
type Renew struct{ catalog.Renewal }

// Next implements [catalog.Transition].
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
