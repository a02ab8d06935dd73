package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/takeover"
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
	o.troubles = o.w.Now()
	if p != nil {
		o.troubled[p] = o.w.Now()
	}
}

func (o *oracle) elected() { o.trouble(nil) }

// slack returns the extra time for a few commands and for the interval of the checks.
func (o *oracle) slack() time.Duration { return o.w.s.Timing.Ping/2 + time.Second }

// slowThings checks every lock document and its holder.
func (o *oracle) slowThings(open []*Held) {
	for _, p := range o.w.slots {
		if p != nil && !p.Dead && (p.Paused > 0 || o.w.Now() < max(p.cut, p.deaf, p.hang, p.old)) {
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
				w = &waitingFor{since: now, by: map[*process]time.Duration{}}
			}
			w.limit = limit
			w.contended(contenders, now)
			found[what] = w
		}
	}
	o.slow = found
	for _, thing := range slices.SortedFunc(maps.Keys(found), compareSlow) {
		w := found[thing]
		since := max(w.since, o.troubles)
		if thing.needsContender() {
			since = max(since, w.longest(now))
		}
		if waited := now - since; waited > w.limit {
			o.violated(thing.rule(), "%q is %s for %v without any trouble, at most %v are promised",
				thing.name, thing.what, waited, w.limit)
		}
	}
}

// contended updates the contenders. If a process stops contending, its time starts again at zero.
func (w *waitingFor) contended(contenders []*process, now time.Duration) {
	for p := range w.by {
		if !slices.Contains(contenders, p) {
			delete(w.by, p)
		}
	}
	for _, p := range contenders {
		if _, there := w.by[p]; !there {
			w.by[p] = now
		}
	}
}

// longest returns the time at which the first contender began to contend.
func (w *waitingFor) longest(now time.Duration) time.Duration {
	for _, since := range w.by {
		now = min(now, since)
	}
	return now
}

// States of a lock that should end.
const (
	ghost      = "held for a living process that does not know of it"
	ghostWaits = "waited for, for a living process that does not know of it"
	untold     = "granted to a waiter that is not told"
	deadHeld   = "held by the dead and waited for"
	deadWaits  = "waited for by the dead before the living"
	freeHeld   = "free and waited for"
	deadTried  = "held by the dead and tried for by jobs"
	hungHeld   = "held by a lease that ran out, and waited for"
	unreadable = "not to be understood and waited for"
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
	l, ok := o.w.store.lockAsOf(name, nil)
	switch {
	case !ok && o.w.Server.Document(catalog.LocksCollection, name) != nil:
		if len(contenders) > 0 {
			found[slowThing{name: name, what: unreadable}] = scaled(tick + t.MaxGap)
		}
		return found
	case !l.Held && len(contenders) > 0:
		found[slowThing{name, freeHeld, l.TS}] =
			scaled(max(t.PollMax*12/10, t.Ping*11/10) + 2*t.Limit + o.slack())
	}
	for _, h := range l.Holders() {
		switch what := o.knows(h, open); {
		case what == ghost:
			found[slowThing{name, what, h.TS}] = tick
		case what == untold:
			found[slowThing{name, what, h.TS}] = o.telling()
		case what == deadHeld && !o.jobsAlone(l) && len(contenders) > 0 && o.inTheWay(l, h, contenders):
			if limit := o.eviction(h); limit > 0 {
				found[slowThing{name, what, h.TS}] = limit
			}
		case what == deadHeld && o.tried(name) > 0 && o.foreign[h.Process] == 0 && o.jobsAlone(l):
			if limit := o.eviction(h); limit > 0 {
				found[slowThing{name, deadTried, h.TS}] = limit + o.tried(name)
			}
		case what == hungHeld && len(contenders) > 0 && o.inTheWay(l, h, contenders):
			found[slowThing{name, what, h.TS}] = o.hung(h.TS)
		}
	}
	o.expectInLine(l, found, tick)
	return found
}

// tried returns the time in which a job that uses the lock runs twice. It returns 0 if there is no
// such job, or if the job can decide only by its own watch.
func (o *oracle) tried(name string) time.Duration {
	for _, p := range o.w.s.Processes {
		if p.Job == name && o.w.s.Timing.Mode == takeover.Witnesses && p.Offset == 0 && p.Rate == 0 {
			return scaled(3 * p.Every)
		}
	}
	return 0
}

// jobsAlone reports whether a lock has one holder and all its waiters belong to jobs that start
// repeatedly.
func (o *oracle) jobsAlone(l catalog.Lock) bool {
	return o.tried(l.Name) > 0 && len(l.Holders()) == 1 &&
		!slices.ContainsFunc(l.Waiters, func(p catalog.Participant) bool {
			return !slices.ContainsFunc(o.w.lives, func(one *process) bool {
				return one.spec.Every > 0 && one.named(p.Process)
			})
		})
}

// inTheWay reports whether a dead holder blocks a contender: it is the only holder, or a contender
// is queued for a permit or in another mode.
func (o *oracle) inTheWay(l catalog.Lock, dead catalog.Participant, contenders []*process) bool {
	if len(l.Holders()) == 1 {
		return true
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
		owner := slices.IndexFunc(o.w.slots, func(s *process) bool {
			return s != nil && !s.over() && s.id() == p.Process
		})
		switch {
		case owner >= 0 && o.goesOn(o.w.slots[owner], l.Name, p):
		case owner >= 0 && !o.shutting(o.w.slots[owner]):
			found[slowThing{l.Name, ghostWaits, p.TS}] = tick
		case owner < 0 && i < alive:
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

func (o *oracle) shutting(p *process) bool { return p.closing != nil }

// eviction returns the time limit for the eviction of a dead party. It returns 0 for a running
// foreign manager, which has no time limit.
func (o *oracle) eviction(p catalog.Participant) time.Duration {
	t := o.w.s.Timing
	need := max(t.Takeover, p.Takeover)
	if sign, foreign := o.foreign[p.Process]; foreign {
		// The last sign of life may be later than the start of the wait.
		for _, f := range o.w.foreigners {
			if f.up && f.Process == p.Process {
				return 0
			}
		}
		need = t.Foreign + max(0, sign-o.troubles)
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
	if a := o.underWay(holder.TS); a != nil {
		if a.stood && !a.several {
			return untold
		}
		return ""
	}
	for _, p := range o.w.slots {
		if p != nil && !p.over() && p.id() == holder.Process {
			if o.shutting(p) {
				return ""
			}
			return ghost
		}
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
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*process
	for _, p := range o.w.slots {
		if p == nil || p.over() || p.closing != nil {
			continue
		}
		waits := slices.ContainsFunc(o.asking, func(a *asking) bool { return a.p == p && a.name == name })
		for _, a := range o.attempts[p] {
			waits = waits || a.name == name && a.waits
		}
		if waits {
			found = append(found, p)
		}
	}
	return found
}

// underWay returns the unfinished attempt that uses the session ts in a live process, or nil.
func (o *oracle) underWay(ts bson.ObjectID) *attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, attempts := range o.attempts {
		if p.over() {
			continue
		}
		for _, a := range attempts {
			if slices.Contains(a.sessions, ts) {
				return a
			}
		}
	}
	return nil
}

// goesOn reports whether the former owner of a place is waiting for the same lock in a new call
// that has not sent a command yet. Such a call continues with the place that its timed-out
// predecessor left. Another caller's call does not.
func (o *oracle) goesOn(p *process, name string, place catalog.Participant) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.attempts[p][labelOf(place.Who)]
	return a != nil && a.name == name && a.waits && len(a.sessions) == 0
}
