package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Lease is an element of the field leases of a lock document. The holder chooses the lifetime of
// the lease. A lease is valid only while its session holds the lock.
type Lease struct {
	TS   bson.ObjectID
	Life time.Duration // written as ms; at most MaxTakeover
	// Number rises with every renewal. If a contender reads the same number for the whole lifetime of
	// the lease, the lease has expired.
	Number int64
	At     time.Time // the server's clock at the last renewal; zero when unreadable
	Local  time.Time // the holder's own clock at the last renewal; zero when absent
}

// A Renewal begins or renews a lease.
type Renewal struct {
	Session
	// Number is 1 for the first renewal, then 2, 3 and so on. After a failed renewal, the next one has
	// a new number. So a delayed renewal does not overwrite a later one.
	Number int64
	Life   time.Duration
	Local  time.Time // the holder's own clock
}

// Supersedes reports whether the renewal may replace the given lease. It may replace a lease with a
// smaller number. It may also replace the lease that the same renewal wrote. A lease with the same
// number but another local time is from a twin, which is another process with the same id.
func (r Renewal) Supersedes(seen Lease) bool {
	return seen.Number < r.Number ||
		seen.Number == r.Number && seen.Local.UnixMilli() == r.Local.UnixMilli()
}

// LeaseOf returns the lease of a session that holds the lock. If the session has no lease, ok is
// false. If the session has several leases, as after a manual edit, LeaseOf returns the lease with
// the largest number.
func (l Lock) LeaseOf(ts bson.ObjectID) (lease Lease, ok bool) {
	for _, one := range l.Leases {
		if one.TS == ts && (!ok || one.Number > lease.Number) {
			lease, ok = one, true
		}
	}
	return lease, ok
}

// parseLeases skips invalid leases. In state 2 without sharers it skips all leases, because a
// foreign manager wrote that state.
func (l *Lock) parseLeases(v bson.RawValue) {
	list, ok := v.ArrayOK()
	if !ok || !l.Held || l.State > stateOurs && len(l.Sharers) == 0 {
		return
	}
	values, _ := list.Values() // an invalid array has no leases
	for _, v := range values {
		in, _ := v.DocumentOK()
		ts, _ := in.Lookup("ts").ObjectIDOK()
		number, problem := integral(in.Lookup("n"))
		lease := Lease{
			TS: ts, Life: bounded(in.Lookup("ms")), Number: number, At: date(in.Lookup("at")),
			Local: date(in.Lookup("local")),
		}
		if _, holds := l.HeldBy(ts); holds && problem == "" && number > 0 && lease.Life > 0 {
			l.Leases = append(l.Leases, lease)
		}
	}
}
