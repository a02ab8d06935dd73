package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Lease is an element of the field leases: the lifetime that a holder set for its lock. It counts
// only while its session holds the lock, so the next holder never inherits it.
type Lease struct {
	TS   bson.ObjectID
	Life time.Duration // written as ms; at most MaxTakeover
	// Number rises with every sent renewal. The lease has expired when a contender has seen the
	// same number for Life.
	Number int64
	At     time.Time // the server's clock at the last renewal; zero when unreadable
	Local  time.Time // the holder's own clock at the last renewal; zero when absent
}

// A Renewal begins or renews a lease.
type Renewal struct {
	Session
	// Number is 1, 2, 3 and so on. Every sent renewal has a new number, even after a failure, so a
	// delayed renewal does not match after a later one.
	Number int64
	Life   time.Duration
	Local  time.Time // the holder's own clock
}

// Supersedes reports whether the renewal may replace a lease: it is newer, or a copy of its own
// command wrote the lease. A twin's renewal with the same number has another local time.
func (r Renewal) Supersedes(seen Lease) bool {
	return seen.Number < r.Number ||
		seen.Number == r.Number && seen.Local.UnixMilli() == r.Local.UnixMilli()
}

// LeaseOf returns the lease of a session that holds the lock; ok is false without a lease. A manual
// edit can cause several leases. Then LeaseOf returns the lease with the largest number.
func (l Lock) LeaseOf(ts bson.ObjectID) (lease Lease, ok bool) {
	for _, one := range l.Leases {
		if one.TS == ts && (!ok || one.Number > lease.Number) {
			lease, ok = one, true
		}
	}
	return lease, ok
}

// parseLeases parses the holders' leases. It ignores an invalid lease: a holder without a lease is
// judged by its ping. It ignores all leases of a single holder in state 2, since another manager
// wrote that state, see Lock.Takeover.
func (l *Lock) parseLeases(v bson.RawValue) {
	list, ok := v.ArrayOK()
	if !ok || !l.Held || l.State > stateOurs && len(l.Sharers) == 0 {
		return
	}
	values, _ := list.Values() // an invalid array has no leases
	for _, v := range values {
		raw, _ := v.DocumentOK()
		in := fieldsOf(raw)
		ts, _ := in.lookup("ts").ObjectIDOK()
		number, problem := integral(in.lookup("n"))
		lease := Lease{
			TS: ts, Life: bounded(in.lookup("ms")), Number: number, At: date(in.lookup("at")),
			Local: date(in.lookup("local")),
		}
		if _, holds := l.HeldBy(ts); holds && problem == "" && number > 0 && lease.Life > 0 {
			l.Leases = append(l.Leases, lease)
		}
	}
}
