package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// This file implements the users' calls for locks with a lease, and the checks of leases.

// renewFor works under a lock for d. It renews the lease in the interval every.
func (u *User) renewFor(h *Held, every, d time.Duration) {
	for end := u.p.w.Now() + d; u.p.w.Now() < end; {
		if !u.Work(h, min(every, end-u.p.w.Now())) {
			return
		}
		_ = h.guard.Renew(u.p.ctx) // the guard has the result
	}
}

// A tenure is a guard's lease. The oracle computes the lease from the renewals whose answers have
// reached the process.
type tenure struct {
	life time.Duration
	// sure is the send time of the last renewal with an answer that counted. late may be newer: it
	// includes a renewal that was answered in the same instant in which its caller stopped waiting,
	// so the answer may have counted.
	sure, late clock.Reading
}

// renewed records the answered renewal c. In a transaction answered is the commit, else it is c.
func (o *oracle) renewed(c, answered *call) {
	t := o.tenures[c.ts]
	if t == nil || o.guardOf(c.ts) == nil { // no guard trusts it yet
		t = &tenure{life: c.renewal.Life, sure: c.reading, late: c.reading}
		o.tenures[c.ts] = t
	}
	now := c.p.Clock.Now()
	if !t.over(c.p, t.late, now) {
		t.late = c.reading
	}
	if !answered.overdue.Load() && !t.over(c.p, t.sure, now) {
		t.sure = c.reading
	}
}

// over reports whether a lease with the given send time has expired for its holder.
func (t *tenure) over(p *process, sent, now clock.Reading) bool {
	c := p.config()
	hold := t.life - time.Duration(float64(t.life)*float64(c.Margin)/float64(c.Takeover))
	return clock.HolderElapsed(sent, now) >= hold
}

// ranOut reports whether a session's lease has certainly expired for its holder.
func (o *oracle) ranOut(p *process, ts bson.ObjectID) bool {
	t := o.tenures[ts]
	return t != nil && t.over(p, t.sure, p.Clock.Now())
}

// runOut checks that no guard is trusted after its lease has expired.
func (o *oracle) runOut(open []*Held) {
	for _, h := range open {
		t := o.tenures[h.session()]
		if t == nil || h.lost || h.p.Dead || h.p.Paused > 0 || !t.over(h.p, t.late, h.p.Clock.Now()) {
			continue
		}
		if o.trusted(h) {
			o.violated("lease", "%s trusts %q with fence %d although its lease has run out", h.p, h.name,
				h.guard.Fence())
		}
	}
}

// takenByLease checks that a takeover by lease names the last renewal.
func (o *oracle) takenByLease(c *call, was catalog.Lock) {
	lease, ok := was.LeaseOf(c.from.TS)
	if c.from.Renewal != 0 && (!ok || lease.Number != c.from.Renewal) {
		o.violated("lease", "%s took %q by renewal %d, and the last one is %d", c.who(), c.subject,
			c.from.Renewal, lease.Number)
	}
}

// hung returns the time limit for a takeover from a live holder after the lease has expired.
func (o *oracle) hung(ts bson.ObjectID) time.Duration {
	t := o.w.s.Timing
	return scaled(o.tenures[ts].life + t.MaxGap + 3*t.PollMax + 2*t.Ping + 2*t.Limit + o.slack())
}

// byLease converts snapshots of a lock for the takeover rule: the renewals of one holder replace
// its pings. It also returns the duration of the lease in the last snapshot.
func byLease(looks []seen, from catalog.Holder, ping time.Duration) (shown []seen,
	life time.Duration) {
	for _, l := range looks {
		if l.name != from.Name {
			continue
		}
		l.Ping, l.about = nil, catalog.Participant{}
		if p, ok := l.Lock.HeldBy(from.TS); ok && p.Process == from.Process {
			l.about = p
			if lease, ok := l.Lock.LeaseOf(from.TS); ok {
				life = lease.Life
				l.about.Takeover = life
				l.Ping = &catalog.Ping{
					At: lease.At, Local: lease.Local, Seq: lease.Number, HasSeq: true, Interval: ping,
				}
			}
		}
		shown = append(shown, l)
	}
	return shown, life
}
