package catalog

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Lease is the life that a holder has given its lock, as the document tells in its field leases.
// It names the session that it belongs to, so that none of it is left to the next holder of the
// lock, whichever manager that is: a lease of a session that does not hold the lock is nobody's.
type Lease struct {
	TS   bson.ObjectID
	Life time.Duration // written as ms; at most MaxTakeover
	// Number rises with every renewal that is sent. A contender that has seen it stand still for Life
	// has seen the lease run out.
	Number int64
	At     time.Time // the server's clock at the last renewal; zero when unreadable
	Local  time.Time // the holder's own clock when it was sent; zero when absent
}

// A Renewal is what renews a lease, or begins it.
type Renewal struct {
	Session
	// Number is a new one for every renewal that is sent, whatever becomes of it: 1, 2, 3 and so on.
	// One that was lost and is carried out later, however late, matches nothing then.
	Number int64
	Life   time.Duration
	Local  time.Time // the holder's own clock
}

// Supersedes reports whether a renewal may be written where there is the lease seen: it is newer,
// or the very same, which a copy of the command wrote before. A twin of the process, with the same
// number, had another local time.
func (r Renewal) Supersedes(seen Lease) bool {
	return seen.Number < r.Number ||
		seen.Number == r.Number && seen.Local.UnixMilli() == r.Local.UnixMilli()
}

// LeaseOf returns the lease of a session that holds the lock; ok is false when it has none. Of
// several, which only a hand can have written, it is the one that was renewed last.
func (l Lock) LeaseOf(ts bson.ObjectID) (lease Lease, ok bool) {
	for _, one := range l.Leases {
		if one.TS == ts && (!ok || one.Number > lease.Number) {
			lease, ok = one, true
		}
	}
	return lease, ok
}

// parseLeases understands the leases of those who hold the lock. What is none counts for nothing
// and makes no document malformed: without its lease a holder is judged by its ping, as any other.
// State 2 is not that of a holder of ours, see Lock.Takeover.
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
