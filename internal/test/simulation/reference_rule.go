package simulation

import (
	"maps"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// A seen is a snapshot that a contender has received. If the lock has parties, the field about is
// one of them.
type seen struct {
	catalog.Snapshot
	about          catalog.Participant
	name           string
	sent, received time.Duration // by the contender's monotonic clock
	wall           time.Time     // contender's wall clock at the reply
}

// replied records an answer that has reached its process.
func (o *oracle) replied(c *call) {
	switch c.op {
	case fault.Ping:
		if !c.overdue.Load() { // a late reply may be ignored
			o.acknowledged(c)
		}
	case fault.Enter: // perhaps it is queued now
		l, _ := o.w.store.lock(c.subject)
		if a := o.attemptOf(c); a != nil && has(l.Waiters, c.ts) {
			a.stood = true
		}
	case fault.Renew:
		if c.inside == nil {
			o.renewed(c, c)
		}
	case opCommit:
		if c.inside.renews != nil {
			o.renewed(c.inside.renews, c)
		}
	}
	now := c.p.Clock.Now()
	for _, name := range slices.Sorted(maps.Keys(c.looks)) {
		look := c.looks[name]
		if look.Lock == nil || len(partiesOf(*look.Lock)) == 0 {
			continue
		}
		o.looks[c.p] = append(o.looks[c.p], seen{
			Snapshot: look, name: name, sent: c.reading.Mono, received: now.Mono, wall: now.Wall,
		})
	}
}

// about returns the snapshots in which the holder's process is a party, and sets their field about
// to the holder, or else to another session of that process.
func about(looks []seen, from catalog.Holder) []seen {
	var shown []seen
	for _, l := range looks {
		parties := partiesOf(*l.Lock)
		i := slices.IndexFunc(parties,
			func(p catalog.Participant) bool { return p.Process == from.Process })
		if i < 0 {
			continue
		}
		if own := place(parties, from.TS); own >= 0 && l.name == from.Name &&
			parties[own].Process == from.Process {
			i = own
		}
		l.about = parties[i]
		l.Ping = l.Pings[from.Process].Ping
		shown = append(shown, l)
	}
	return shown
}

// byTheRule checks that the contender's snapshots allow its eviction.
func (o *oracle) byTheRule(c *call) {
	if c.from.Waits { // a waiter that is passed over enters again if it lives
		return
	}
	if !reference(o.looks[c.p], c.from, c.p.config().Takeover, o.w.s.Timing) {
		o.violated("rule", "%s of %q: no rule allows it", c.who(), c.subject)
	}
}

// reference implements the written takeover rule without package takeover. It reports whether the
// snapshots allow an eviction. Several users of a process read concurrently, so reference is no
// stricter than the rule: it compares only neighbours, and every recent snapshot may be the
// deciding one.
func reference(looks []seen, from catalog.Holder, own time.Duration, t Timing) bool {
	if from.Renewal == 0 {
		looks = about(looks, from)
	} else { // by the lease; the process may be pinging
		looks, t.Takeover = byLease(looks, from, t.Ping)
		own = t.Takeover
	}
	for i, l := range slices.Backward(looks) {
		if looks[len(looks)-1].received-l.received > t.MaxGap {
			break
		}
		if l.name == from.Name && l.about.TS == from.TS && allows(looks[:i+1], own, t) {
			return true
		}
	}
	return false
}

// allows reports whether a takeover is allowed after the last snapshot.
func allows(looks []seen, own time.Duration, t Timing) bool {
	now := looks[len(looks)-1]
	if now.Ping != nil && now.Ping.Condemned != nil && !stranger(now) {
		return true
	}
	first := now
	for _, l := range slices.Backward(looks[:len(looks)-1]) {
		crossed := l.received > first.sent // crossing replies, or snapshots of two users
		if !sameSubject(l, now) || crossed && disturbed(l, first) {
			continue
		}
		if disturbed(l, first) || first.sent-l.received > t.MaxGap {
			break
		}
		first = l
	}
	watched := now.sent - first.received
	if !now.ServerTime.IsZero() && !first.ServerTime.IsZero() {
		watched = min(watched, now.ServerTime.Sub(first.ServerTime))
	}
	need := max(own, now.about.Takeover)
	if p := now.Ping; p != nil {
		need = max(need, p.Takeover)
	}
	if stranger(now) {
		need = max(need, t.Foreign)
	}
	return watched >= need || witnessed(now, need, watched, t)
}

func sequenced(l seen) bool { return l.Ping != nil && l.Ping.HasSeq }

// stranger reports whether a snapshot shows a foreign process: its ping has no seq, and either its
// session has no takeover time, or its ping exists and is not condemned.
func stranger(l seen) bool {
	unmarked := l.Ping != nil && l.Ping.Condemned == nil
	return !sequenced(l) && (l.about.Takeover == 0 || unmarked)
}

// sameSubject reports whether two snapshots belong to one watch.
func sameSubject(a, b seen) bool {
	return sequenced(a) == sequenced(b) && (sequenced(a) || a.name == b.name)
}

// disturbed reports whether the difference of two snapshots restarts a watch.
func disturbed(a, b seen) bool {
	switch {
	case (a.Ping == nil) != (b.Ping == nil), a.Primary != b.Primary,
		!sequenced(b) && a.name == b.name && a.about.TS != b.about.TS,
		!a.ServerTime.IsZero() && !b.ServerTime.IsZero() && b.ServerTime.Before(a.ServerTime):
		return true
	case a.Ping == nil:
		return false
	}
	return a.Ping.Seq != b.Ping.Seq || !a.Ping.At.Equal(b.Ping.At) || !a.Ping.Local.Equal(b.Ping.Local)
}

// witnessed reports whether the shorter rule allows a takeover after a snapshot.
func witnessed(l seen, need, watched time.Duration, t Timing) bool {
	if t.Mode == takeover.WatchOnly || !sequenced(l) || l.ServerTime.IsZero() || l.Ping.Local.IsZero() {
		return false
	}
	trip, tolerance := l.received-l.sent, t.Takeover/30
	age := min(l.ServerTime.Sub(l.Ping.At), l.ServerTime.Sub(l.Ping.Local),
		l.wall.Sub(l.Ping.At)-trip)
	return age >= need+tolerance+trip/2 && l.ServerTime.Sub(l.wall).Abs() <= tolerance+trip/2 &&
		(watched >= 3*l.Ping.Interval || sighted(l, trip, t))
}

// sighted reports whether another contender, whose clock agreed with the server's, left an
// observation at least two intervals ago, by the server's clock and by the contenders' clocks.
func sighted(l seen, trip time.Duration, t Timing) bool {
	s := l.Ping.Sight
	if s.By == "" || s.Seq != l.Ping.Seq || s.At.Sub(s.Local).Abs() > t.Takeover/30+trip/2 {
		return false
	}
	return min(l.ServerTime.Sub(s.At), l.wall.Sub(s.Local)-trip) >= 2*l.Ping.Interval
}
