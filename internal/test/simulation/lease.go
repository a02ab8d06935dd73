package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// renewFor works under a lock for the duration d. It renews the lease once per interval.
func (u *User) renewFor(h *Held, interval, d time.Duration) {
	for end := u.p.w.Now() + d; u.p.w.Now() < end; {
		if !u.Work(h, min(interval, end-u.p.w.Now())) {
			return
		}
		_ = h.guard.Renew(u.p.ctx) // the guard stores the result
	}
}

// A guardLease is the lease of a guard. The oracle computes it from the acknowledged renewals.
type guardLease struct {
	duration time.Duration
	// The field certain is the send time of the last certain renewal. The field possible is the send
	// time of the last renewal, certain or uncertain. A renewal is uncertain if its answer arrives in
	// the instant in which the caller stops waiting.
	certain, possible clock.Reading
}

// renewed records a successful renewal. The argument answered is the command whose answer reports
// the success: the commit of the renewal's transaction, or the renewal itself.
func (o *oracle) renewed(c, answered *call) {
	t := o.guardLeases[c.ts]
	if t == nil || o.guardOf(c.ts) == nil { // there is no guard yet
		t = &guardLease{duration: c.renewal.Life, certain: c.reading, possible: c.reading}
		o.guardLeases[c.ts] = t
	}
	now := c.p.Clock.Now()
	if !t.expired(c.p, t.possible, now) {
		t.possible = c.reading
	}
	if !answered.overdue.Load() && !t.expired(c.p, t.certain, now) {
		t.certain = c.reading
	}
}

// expired reports whether the holder must no longer trust a lease whose last renewal was sent at
// the given time.
func (t *guardLease) expired(p *process, sent, now clock.Reading) bool {
	c := p.config()
	hold := t.duration - time.Duration(float64(t.duration)*float64(c.Margin)/float64(c.Takeover))
	return clock.HolderElapsed(sent, now) >= hold
}

// leaseExpired reports whether the lease of a session has certainly expired by the clock of its
// holder.
func (o *oracle) leaseExpired(p *process, ts bson.ObjectID) bool {
	t := o.guardLeases[ts]
	return t != nil && t.expired(p, t.certain, p.Clock.Now())
}

// checkLeases checks that a guard is lost when its lease expires.
func (o *oracle) checkLeases(open []*Held) {
	for _, h := range open {
		t := o.guardLeases[h.session()]
		if t == nil || h.lost || h.p.Dead || h.p.Paused > 0 ||
			!t.expired(h.p, t.possible, h.p.Clock.Now()) {
			continue
		}
		if o.trusted(h) {
			o.violated("lease", "%s trusts %q with fence %d although its lease has expired", h.p, h.name,
				h.guard.Fence())
		}
	}
}

// checkRenewal checks that a takeover by lease names the last renewal of the lease.
func (o *oracle) checkRenewal(c *call, was catalog.Lock) {
	lease, ok := was.LeaseOf(c.from.TS)
	if c.from.Renewal != 0 && (!ok || lease.Number != c.from.Renewal) {
		o.violated("lease", "%s took %q by renewal %d, the last one is %d", c.who(), c.subject,
			c.from.Renewal, lease.Number)
	}
}

// hungLimit returns the time limit for a takeover from a live holder whose lease has expired.
func (o *oracle) hungLimit(ts bson.ObjectID) time.Duration {
	t := o.w.s.Timing
	d := o.guardLeases[ts].duration
	return scaled(d + t.MaxGap + 3*t.PollMax + 2*t.Ping + 2*t.Limit + o.slack())
}

// byLease returns the snapshots of one lock, with renewals of the lease in place of pings. It also
// returns the duration of the lease, from the last snapshot that shows a lease.
func byLease(snapshots []snapshot, from catalog.Holder, ping time.Duration) (shown []snapshot,
	duration time.Duration) {
	for _, l := range snapshots {
		if l.name != from.Name {
			continue
		}
		l.Ping, l.about = nil, catalog.Participant{}
		if p, ok := l.Lock.HeldBy(from.TS); ok && p.Process == from.Process {
			l.about = p
			if lease, ok := l.Lock.LeaseOf(from.TS); ok {
				duration = lease.Life
				l.about.Takeover = duration
				l.Ping = &catalog.Ping{
					At: lease.At, Local: lease.Local, Seq: lease.Number, HasSeq: true, Interval: ping,
				}
			}
		}
		shown = append(shown, l)
	}
	return shown, duration
}
