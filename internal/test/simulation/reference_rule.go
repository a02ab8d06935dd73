package simulation

import (
	"fmt"
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
	case fault.Enter:
		o.stands(c)
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
			Snapshot: look, name: name, sent: c.mono, received: now.Mono, wall: now.Wall,
		})
	}
}

// stands records that an attempt is queued.
func (o *oracle) stands(c *call) {
	l, _ := o.w.store.lockAsOf(c.subject, nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	if a := o.attempts[c.p][labelOf(c.request.Who)]; a != nil && placeOf(l, c.ts) >= 0 {
		a.stood = true
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
		l.about = parties[i]
		if p, ok := find(parties, from.TS); ok && l.name == from.Name && p.Process == from.Process {
			l.about = p
		}
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
	if why := reference(o.looks[c.p], c.from, c.p.config().Takeover, o.w.s.Timing); why != "" {
		o.violated("rule", "%s of %q: %s", c.who(), c.subject, why)
	}
}

// reference implements the written takeover rule without package takeover. It returns "" if the
// snapshots allow an eviction, or else the reason. Several users of a process read concurrently, so
// reference is no stricter than the rule: it compares only neighbours, and every recent snapshot
// may be the deciding one.
func reference(looks []seen, from catalog.Holder, own time.Duration, t Timing) string {
	const unseen = "nobody has looked at that session lately"
	why := unseen
	if from.Renewal == 0 {
		looks = about(looks, from)
	} else { // by the lease; the process may be pinging
		looks, t.Takeover = byLease(looks, from, t.Ping)
		own = t.Takeover
	}
	for i := len(looks) - 1; i >= 0; i-- {
		l := looks[i]
		if looks[len(looks)-1].received-l.received > t.MaxGap {
			break
		}
		if l.name != from.Name || l.about.TS != from.TS {
			continue
		}
		refusal := allows(looks[:i+1], own, t)
		if refusal == "" {
			return ""
		}
		if why == unseen {
			why = refusal // from the latest snapshot, which has watched for longest
		}
	}
	return why
}

// allows checks a takeover after the last snapshot. It returns "", or the reason against the
// takeover.
func allows(looks []seen, own time.Duration, t Timing) string {
	now := looks[len(looks)-1]
	if now.Ping != nil && now.Ping.Condemned != nil && !stranger(now) {
		return ""
	}
	first := now
	for i := len(looks) - 2; i >= 0; i-- {
		crossed := looks[i].received > first.sent // crossing replies, or snapshots of two users
		if !sameSubject(looks[i], now) || crossed && disturbed(looks[i], first) {
			continue
		}
		if disturbed(looks[i], first) || first.sent-looks[i].received > t.MaxGap {
			break
		}
		first = looks[i]
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
	if watched >= need {
		return ""
	}
	without := witnessed(now, need, watched, t)
	if without == "" {
		return ""
	}
	return fmt.Sprintf("no rule allows it: the watch rule wants the same picture for %v, its looks "+
		"show it for %v; the witnesses do not do, since %s", need, watched, without)
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

// witnessed checks the shorter rule. It returns the reason why a snapshot does not allow a
// takeover, or "" if it allows it.
func witnessed(l seen, need, watched time.Duration, t Timing) string {
	switch {
	case t.Mode == takeover.WatchOnly:
		return "they are not to be asked"
	case !sequenced(l) || l.ServerTime.IsZero() || l.Ping.Local.IsZero():
		return "one of them is missing"
	}
	trip := l.received - l.sent
	server, holder := l.ServerTime.Sub(l.Ping.At), l.ServerTime.Sub(l.Ping.Local)
	contender, apart := l.wall.Sub(l.Ping.At)-trip, l.ServerTime.Sub(l.wall).Abs()
	switch {
	case min(server, contender, holder) < need+t.Takeover/30+trip/2:
		return fmt.Sprintf("the ping is %v, %v and %v old by them", server, contender, holder)
	case apart > t.Takeover/30+trip/2:
		return fmt.Sprintf("server and contender are %v apart", apart)
	case watched < 3*l.Ping.Interval && !sighted(l, trip, t):
		return fmt.Sprintf("that is less than three ping intervals, %v, and no sight of two is left",
			3*l.Ping.Interval)
	}
	return ""
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
