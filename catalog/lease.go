package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Lease is the lifetime that a holder has set for its lock, an element of the field leases. A
// lease names its session and is ignored unless that session holds the lock, so the next holder
// never inherits it.
type Lease struct {
	TS   bson.ObjectID
	Life time.Duration // written as ms; at most MaxTakeover
	// Number rises with every renewal that is sent. When a contender has seen it unchanged for Life,
	// the lease has expired.
	Number int64
	At     time.Time // the server's clock at the last renewal; zero when unreadable
	Local  time.Time // the holder's own clock when it was sent; zero when absent
}

// A Renewal renews a lease, or begins it.
type Renewal struct {
	Session
	// Number is a new one for every renewal that is sent, whether or not it succeeds: 1, 2, 3 and so
	// on. So a delayed renewal does not match after a later one.
	Number int64
	Life   time.Duration
	Local  time.Time // the holder's own clock
}

// Supersedes reports whether a renewal may replace the lease seen: it is newer, or a copy of the
// same command wrote the lease. A twin of the process with the same number has another local time.
func (r Renewal) Supersedes(seen Lease) bool {
	return seen.Number < r.Number ||
		seen.Number == r.Number && seen.Local.UnixMilli() == r.Local.UnixMilli()
}

// LeaseOf returns the lease of a session that holds the lock; ok is false when it has none. Of
// several, which only a manual edit can cause, it returns the one with the largest number.
func (l Lock) LeaseOf(ts bson.ObjectID) (lease Lease, ok bool) {
	for _, one := range l.Leases {
		if one.TS == ts && (!ok || one.Number > lease.Number) {
			lease, ok = one, true
		}
	}
	return lease, ok
}

// parseLeases parses the leases of the holders. It ignores an invalid lease, which does not make
// the document malformed: a holder without a lease is judged by its ping. It also ignores the
// leases of a single holder in state 2, which another manager wrote, see Lock.Takeover.
func (l *Lock) parseLeases(v bson.RawValue) {
	list, ok := v.ArrayOK()
	if !ok || !l.Held || l.State > stateOurs && len(l.Sharers) == 0 {
		return
	}
	values, err := list.Values()
	if err != nil {
		return
	}
	for _, v := range values {
		raw, ok := v.DocumentOK()
		if !ok {
			continue
		}
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
