package transition

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Renew begins or renews the lease of a session that holds the lock in any mode. It writes the
// renewal's number, lifetime and local time, and the server's clock. It removes the leases of
// former holders. A repeated renewal is acknowledged again. Renew returns ErrNoMatch if the session
// does not hold the lock, or if the renewal does not supersede the session's lease. It may be part
// of a transaction, see [catalog.Transactions].
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

// LeaseMS returns a lifetime in milliseconds, rounded up, as it is stored.
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
