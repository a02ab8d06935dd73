package simulation

import (
	"maps"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// A snapshot is a [catalog.Snapshot] that a contender has received. The field about is the holder
// or waiter whose eviction is judged.
type snapshot struct {
	catalog.Snapshot
	about          catalog.Participant
	name           string
	sent, received time.Duration // by the contender's monotonic clock
	wall           time.Time     // contender's wall clock at the reply
}

// replied records that a process has received the answer to a command. It extends terms and leases,
// records an entry in the queue, and stores snapshots.
func (o *oracle) replied(c *call) {
	switch c.op {
	case fault.Ping:
		if !c.overdue.Load() { // a late reply may be ignored
			o.acknowledged(c)
		}
	case fault.Enter, fault.Release: // the session may be queued now
		l, _ := o.w.store.lock(c.subject)
		if a := o.attemptFor(c); a != nil && has(l.Waiters, c.entering()) {
			a.queued = true
		}
	case fault.Renew:
		if c.transaction == nil {
			o.renewed(c, c)
		}
	case opCommit:
		if c.transaction.renews != nil {
			o.renewed(c.transaction.renews, c)
		}
	}
	now := c.p.Clock.Now()
	for _, name := range slices.Sorted(maps.Keys(c.snapshots)) {
		s := c.snapshots[name]
		if s.Lock == nil || len(partiesOf(*s.Lock)) == 0 {
			continue
		}
		o.snapshots[c.p] = append(o.snapshots[c.p], snapshot{
			Snapshot: s, name: name, sent: c.reading.Mono, received: now.Mono, wall: now.Wall,
		})
	}
}

// about returns the snapshots that show the process of a suspected holder. It sets the field named
// about of each snapshot to the session of the holder. If a snapshot does not show that session,
// the field contains another session of the process.
func about(snapshots []snapshot, from catalog.Holder) []snapshot {
	var shown []snapshot
	for _, l := range snapshots {
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

// checkEviction checks that the snapshots of a contender allow the eviction that the contender
// sends.
func (o *oracle) checkEviction(c *call) {
	if c.from.Waits { // a waiter that is passed over enters again if it lives
		return
	}
	if !reference(o.snapshots[c.p], c.from, c.p.config().Takeover, o.w.s.Timing) {
		o.violated("rule", "%s of %q: no rule allows it", c.who(), c.subject)
	}
}

// reference reports whether the takeover rule allows an eviction after the given snapshots. It
// implements the rule without package takeover. It is less strict than package takeover, because
// the users of a process read concurrently. It compares only neighbouring snapshots, and the
// decision may be based on any recent snapshot.
func reference(snapshots []snapshot, from catalog.Holder, own time.Duration, t Timing) bool {
	if from.Renewal == 0 {
		snapshots = about(snapshots, from)
	} else { // a takeover by lease; the process may be pinging
		snapshots, t.Takeover = byLease(snapshots, from, t.Ping)
		own = t.Takeover
	}
	for i, l := range slices.Backward(snapshots) {
		if snapshots[len(snapshots)-1].received-l.received > t.MaxGap {
			break
		}
		if l.name == from.Name && l.about.TS == from.TS && allows(snapshots[:i+1], own, t) {
			return true
		}
	}
	return false
}

// allows reports whether the snapshots allow a takeover at the time of the last snapshot.
func allows(snapshots []snapshot, own time.Duration, t Timing) bool {
	now := snapshots[len(snapshots)-1]
	if now.Ping != nil && now.Ping.Condemned != nil && !isForeign(now) {
		return true
	}
	first := now
	for _, l := range slices.Backward(snapshots[:len(snapshots)-1]) {
		crossed := l.received > first.sent // crossing replies, or snapshots of two users
		if !sameSubject(l, now) || crossed && restartsWatch(l, first) {
			continue
		}
		if restartsWatch(l, first) || first.sent-l.received > t.MaxGap {
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
	if isForeign(now) {
		need = max(need, t.Foreign)
	}
	return watched >= need || shorterRule(now, need, watched, t)
}

func sequenced(l snapshot) bool { return l.Ping != nil && l.Ping.HasSeq }

// isForeign reports whether a snapshot shows a foreign process. The ping of a foreign process has
// no seq. Its session has no takeover time, or its ping exists and is not condemned.
func isForeign(l snapshot) bool {
	unmarked := l.Ping != nil && l.Ping.Condemned == nil
	return !sequenced(l) && (l.about.Takeover == 0 || unmarked)
}

// sameSubject reports whether one watch can contain both snapshots.
func sameSubject(a, b snapshot) bool {
	return sequenced(a) == sequenced(b) && (sequenced(a) || a.name == b.name)
}

// restartsWatch reports whether a watch must start again between two snapshots.
func restartsWatch(a, b snapshot) bool {
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

// shorterRule reports whether the shorter takeover rule, which compares clocks, allows a takeover.
func shorterRule(l snapshot, need, watched time.Duration, t Timing) bool {
	if t.Mode == takeover.WatchOnly || !sequenced(l) || l.ServerTime.IsZero() || l.Ping.Local.IsZero() {
		return false
	}
	trip, tolerance := l.received-l.sent, t.Takeover/30
	age := min(l.ServerTime.Sub(l.Ping.At), l.ServerTime.Sub(l.Ping.Local),
		l.wall.Sub(l.Ping.At)-trip)
	return age >= need+tolerance+trip/2 && l.ServerTime.Sub(l.wall).Abs() <= tolerance+trip/2 &&
		(watched >= 3*l.Ping.Interval || observed(l, trip, t))
}

// observed reports whether another contender has recorded an observation of the ping. The
// observation must be at least two ping intervals old, by the server's clock and by the clocks of
// both contenders.
func observed(l snapshot, trip time.Duration, t Timing) bool {
	s := l.Ping.Sight
	if s.By == "" || s.Seq != l.Ping.Seq || s.At.Sub(s.Local).Abs() > t.Takeover/30+trip/2 {
		return false
	}
	return min(l.ServerTime.Sub(s.At), l.wall.Sub(s.Local)-trip) >= 2*l.Ping.Interval
}
