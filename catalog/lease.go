package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Lease is an element of the field leases. It has the lifetime that a holder chose for its lock.
// A lease counts only while its session holds the lock.
type Lease struct {
	TS   bson.ObjectID
	Life time.Duration // written as ms; at most MaxTakeover
	// Number rises with every renewal that is sent. The lease has expired when a contender has read
	// the same number for the whole lifetime of the lease.
	Number int64
	At     time.Time // the server's clock at the last renewal; zero when unreadable
	Local  time.Time // the holder's own clock at the last renewal; zero when absent
}

// A Renewal begins or renews a lease.
type Renewal struct {
	Session
	// Number is 1 for the first renewal, then 2, 3 and so on. A renewal that is sent after a failed
	// one has a new number. So a delayed renewal does not match after a later one.
	Number int64
	Life   time.Duration
	Local  time.Time // the holder's own clock
}

// Supersedes reports whether the renewal may replace a lease: the renewal has a larger number, or
// it wrote that lease itself. A twin's renewal with the same number has another local time.
func (r Renewal) Supersedes(seen Lease) bool {
	return seen.Number < r.Number ||
		seen.Number == r.Number && seen.Local.UnixMilli() == r.Local.UnixMilli()
}

// LeaseOf returns the lease of a session that holds the lock. ok is false without a lease. If there
// are several leases, as after a manual edit, LeaseOf returns the one with the largest number.
func (l Lock) LeaseOf(ts bson.ObjectID) (lease Lease, ok bool) {
	for _, one := range l.Leases {
		if one.TS == ts && (!ok || one.Number > lease.Number) {
			lease, ok = one, true
		}
	}
	return lease, ok
}

// parseLeases parses the holders' leases. It ignores an invalid lease, so its holder has none. It
// also ignores the leases of a single holder in state 2, because another manager wrote that state,
// see Lock.Takeover.
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
