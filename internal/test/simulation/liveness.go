package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file checks the time limits that hold without further faults (I6, I7).

// A slowThing is a state that should end: a ghost, a dead holder, or a free lock with contenders.
type slowThing struct {
	name string
	what string
	ts   bson.ObjectID
}

// waitingFor holds the start of a slowThing, and the time at which each process began to contend.
type waitingFor struct {
	since time.Duration
	by    map[*process]time.Duration
	limit time.Duration
}

// trouble records a fault of a process, or of the world if p is nil. All time limits start again.
func (o *oracle) trouble(p *process) {
	o.faulty, o.troubles = true, o.w.Now()
	if p != nil {
		o.troubled[p] = o.w.Now()
	}
}

// slack returns the extra time for a few commands and for the interval of the checks.
func (o *oracle) slack() time.Duration { return o.w.s.Timing.Ping/2 + time.Second }

// slowThings checks every lock document and its holder.
func (o *oracle) slowThings(open []*Held) {
	for _, p := range o.w.slots {
		if p != nil && !p.Dead && (p.Paused > 0 || o.w.Now() < p.disturbed()) {
			o.trouble(p)
		}
	}
	now := o.w.Now()
	found := map[slowThing]*waitingFor{}
	for _, name := range o.asked() {
		contenders := o.contenders(name)
		for what, limit := range o.expect(name, open, contenders) {
			w := o.slow[what]
			if w == nil {
				w = &waitingFor{since: now}
			}
			w.limit = limit
			by := map[*process]time.Duration{} // if a process stops contending, its time ends
			for _, p := range contenders {
				by[p] = now
				if since, there := w.by[p]; there {
					by[p] = since
				}
			}
			w.by = by
			found[what] = w
		}
	}
	o.slow = found
	for _, thing := range slices.SortedFunc(maps.Keys(found), compareSlow) {
		w := found[thing]
		since := max(w.since, o.troubles)
		if thing.needsContender() {
			since = max(since, slices.Min(append(slices.Collect(maps.Values(w.by)), now)))
		}
		if waited := now - since; waited > w.limit {
			o.violated(thing.rule(), "%q is %s for %v without any trouble, at most %v are promised",
				thing.name, thing.what, waited, w.limit)
		}
	}
}

// States of a lock that should end.
const (
	ghost      = "held for a living process that does not know of it"
	ghostWaits = "waited for, for a living process that does not know of it"
	untold     = "granted to a waiter that is not told"
	deadHeld   = "held by the dead and waited for"
	deadWaits  = "waited for by the dead before the living"
	freeHeld   = "free and waited for"
	hungHeld   = "held by a lease that ran out, and waited for"
	outside    = "waited for without a place in the queue by "
)

func (t slowThing) rule() string {
	if t.what == ghost || t.what == ghostWaits {
		return "I6"
	}
	return "I7"
}

func (t slowThing) needsContender() bool {
	return t.what == deadHeld || t.what == deadWaits || t.what == hungHeld
}

func compareSlow(a, b slowThing) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.what, b.what),
		slices.Compare(a.ts[:], b.ts[:]))
}

// expect returns the states of a lock that should end, each with its time limit.
func (o *oracle) expect(name string, open []*Held,
	contenders []*process) map[slowThing]time.Duration {
	t := o.w.s.Timing
	found := map[slowThing]time.Duration{}
	if o.w.Server.Busy(name) { // a dead process's transaction blocks the lock for a limited time
		return found
	}
	tick := scaled(t.Ping*11/10 + 2*t.Limit + o.slack())
	l, _ := o.w.store.lock(name)
	if !l.Held && len(contenders) > 0 {
		found[slowThing{name, freeHeld, l.TS}] =
			scaled(max(t.PollMax*12/10, t.Ping*11/10) + 2*t.Limit + o.slack())
	}
	for _, h := range l.Holders() {
		limit := time.Duration(0) // for nothing
		what := o.knows(h, open)
		switch inTheWay := o.inTheWay(l, h, contenders); {
		case what == ghost:
			limit = tick
		case what == untold:
			limit = o.telling()
		case what == deadHeld && inTheWay:
			limit = o.eviction(h)
		case what == hungHeld && inTheWay:
			limit = o.hung(h.TS)
		}
		if limit > 0 {
			found[slowThing{name, what, h.TS}] = limit
		}
	}
	o.expectInLine(l, found, tick)
	for _, p := range contenders { // a caller with another limit of permits waits outside
		if name != permitted && o.waitsFor(p, name) && !slices.ContainsFunc(partiesOf(l),
			func(party catalog.Participant) bool { return p.named(party.Process) }) {
			found[slowThing{name: name, what: outside + p.String()}] = scaled(tick + t.MaxGap)
		}
	}
	return found
}

// inTheWay reports whether a dead holder blocks a contender: it is the only holder, or a contender
// is queued for a permit or in another mode.
func (o *oracle) inTheWay(l catalog.Lock, dead catalog.Participant, contenders []*process) bool {
	if len(l.Holders()) == 1 {
		return len(contenders) > 0
	}
	return slices.ContainsFunc(l.Waiters, func(p catalog.Participant) bool {
		return slices.ContainsFunc(contenders, func(c *process) bool { return c.named(p.Process) }) &&
			(p.Mode == catalog.Permit || p.Mode != dead.Mode)
	})
}

// expectInLine adds the states of a lock's waiters that should end.
func (o *oracle) expectInLine(l catalog.Lock, found map[slowThing]time.Duration,
	tick time.Duration) {
	alive := -1 // index of the last live waiter
	for i, p := range l.Waiters {
		if o.underWay(p.TS) != nil {
			alive = i
		}
	}
	for i, p := range l.Waiters {
		if o.underWay(p.TS) != nil {
			continue
		}
		owner := o.owner(p)
		switch {
		case owner != nil && o.goesOn(owner, l.Name, p):
		case owner != nil && owner.closing == nil:
			found[slowThing{l.Name, ghostWaits, p.TS}] = tick
		case owner == nil && i < alive:
			if limit := o.eviction(p); limit > 0 {
				// A release passes over a waiter that has missed two pings. The waiter's eviction
				// is due later. So the waiter stays queued until the next release.
				t := o.w.s.Timing
				held := max(0, o.w.ServerNow().Sub(l.When))
				found[slowThing{l.Name, deadWaits, p.TS}] = min(limit,
					held+scaled(6*t.Ping+t.PollMax+2*t.Limit+o.slack()))
			}
		}
	}
}

// owner returns the running process with the process id of a party, or nil.
func (o *oracle) owner(party catalog.Participant) *process {
	for _, p := range o.w.slots {
		if p != nil && !p.over() && p.id() == party.Process {
			return p
		}
	}
	return nil
}

// eviction returns the time limit for the eviction of a dead party. It returns 0 for a running
// foreign manager, which has no time limit.
func (o *oracle) eviction(p catalog.Participant) time.Duration {
	t := o.w.s.Timing
	need := max(t.Takeover, p.Takeover)
	if p.Process == foreignProcess {
		if o.w.foreign.up {
			return 0
		}
		// The last sign of life may be later than the start of the wait.
		need = t.Foreign + max(0, o.foreignSign-o.troubles)
	}
	return scaled(need + t.MaxGap + 3*t.PollMax + 2*t.Ping + 2*t.Limit + o.slack())
}

// knows describes what is wrong with a holder, or returns "" if nothing is:
//   - The lease has expired.
//   - The process does not know that it holds the lock.
//   - The waiter has not learned of its grant.
//   - The holder is dead.
func (o *oracle) knows(holder catalog.Participant, open []*Held) string {
	for _, h := range open {
		switch {
		case h.session() != holder.TS || h.p.over():
		case h.lost && o.ranOut(h.p, holder.TS):
			return hungHeld
		default:
			return ""
		}
	}
	a, owner := o.underWay(holder.TS), o.owner(holder)
	switch {
	case a != nil && a.stood && !a.several:
		return untold
	case a != nil, owner != nil && owner.closing != nil:
		return ""
	case owner != nil:
		return ghost
	}
	return deadHeld
}

// telling returns the time limit for a waiter to learn of its grant. It allows for the pause
// between two polls: with a stream a quarter of the wait, at most a ping interval.
func (o *oracle) telling() time.Duration {
	t := o.w.s.Timing
	pause := max(t.PollMax, min(t.Ping, o.w.Now()/4)) * 12 / 10
	return scaled(pause + 2*t.Limit + time.Second)
}

// scaled lengthens a duration for the slowest clock.
func scaled(d time.Duration) time.Duration { return d * 12 / 10 }

// contenders returns the live processes that wait for a lock or poll it.
func (o *oracle) contenders(name string) []*process {
	var found []*process
	for _, p := range o.w.slots {
		if p != nil && !p.over() && p.closing == nil && o.attempt(func(a *attempt) bool {
			return a.p == p && a.name == name && (a.waits || a.polls)
		}) != nil {
			found = append(found, p)
		}
	}
	return found
}

func (o *oracle) waitsFor(p *process, name string) bool {
	return o.attempt(func(a *attempt) bool { return a.p == p && a.name == name && a.waits }) != nil
}

// attempt returns an open call with a property, or nil.
func (o *oracle) attempt(is func(*attempt) bool) *attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.IndexFunc(o.attempts, is); i >= 0 {
		return o.attempts[i]
	}
	return nil
}

// underWay returns the unfinished attempt that uses the session ts in a live process, or nil.
func (o *oracle) underWay(ts bson.ObjectID) *attempt {
	return o.attempt(func(a *attempt) bool { return slices.Contains(a.sessions, ts) && !a.p.over() })
}

// goesOn reports whether the former owner of a place is waiting for the same lock in a new call
// that has not sent a command yet. Such a call continues with the place that its timed-out
// predecessor left. Another caller's call does not.
func (o *oracle) goesOn(p *process, name string, place catalog.Participant) bool {
	return o.attempt(func(a *attempt) bool {
		return a.p == p && a.label == labelOf(place.Who) && a.name == name && a.waits &&
			len(a.sessions) == 0
	}) != nil
}
