package explore

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file judges what must happen in time while nothing else goes wrong (I6, I7).

// waitingFor is something that should end: a ghost, a dead holder's lock, a free lock that somebody
// waits for.
type waitingFor struct {
	what  string
	ts    bson.ObjectID
	since time.Duration
}

// trouble notes that something went wrong with a process: patience begins anew.
func (o *oracle) trouble(p *process) {
	o.troubles = o.w.now()
	if p != nil {
		o.troubled[p] = o.w.now()
	}
}

// elected notes an election.
func (o *oracle) elected() { o.trouble(nil) }

// slack is what a few commands and the granularity of the oracle may take.
func (o *oracle) slack() time.Duration { return o.w.s.Timing.Ping/2 + time.Second }

// slowThings looks at every lock document and its holder.
func (o *oracle) slowThings(open []*Held) {
	for _, p := range o.w.slots {
		if p != nil && !p.dead && (p.paused > 0 || o.w.now() < max(p.cut, p.deaf, p.old)) {
			o.trouble(p)
		}
	}
	for _, name := range o.names {
		o.inTime(name, open)
	}
}

// inTime judges one lock.
func (o *oracle) inTime(name string, open []*Held) {
	l, ok := o.w.store.lockAsOf(name, nil)
	if !ok && o.w.mem.Document(catalog.LocksCollection, name) != nil {
		return
	}
	what, ts, limit := o.expect(name, l, open)
	was := o.slow[name]
	if what == "" || was.what != what || was.ts != ts {
		o.slow[name] = waitingFor{what: what, ts: ts, since: o.w.now()}
		return
	}
	if waited := o.w.now() - max(was.since, o.troubles); waited > limit {
		rule := "I7"
		if what == ghost {
			rule = "I6"
		}
		o.violated(rule, "%q is %s for %v without any trouble, at most %v are promised",
			name, what, waited, limit)
	}
}

// What a lock may be that should change.
const (
	ghost    = "held for a living process that does not know of it"
	untold   = "granted to a waiter that is not told"
	deadHeld = "held by the dead and waited for"
	freeHeld = "free and waited for"
)

// expect says what should happen to a lock, because of which session, and within which time; "" when
// nothing need happen.
func (o *oracle) expect(name string, l catalog.Lock, open []*Held) (
	what string, ts bson.ObjectID, limit time.Duration) {
	t := o.w.s.Timing
	tick := scaled(t.Ping*11/10 + 2*t.Limit + o.slack())
	if !l.Held {
		if o.contender(name) == nil {
			return "", ts, 0
		}
		return freeHeld, l.TS, scaled(max(t.PollMax*12/10, t.Ping*11/10) + 2*t.Limit + o.slack())
	}
	known := false
	for _, h := range l.Holders() {
		switch what := o.knows(h, open); what {
		case ghost:
			return what, h.TS, tick
		case untold:
			return what, h.TS, o.telling()
		case "":
			known = true
		}
	}
	if known || o.contender(name) == nil {
		return "", ts, 0
	}
	need := t.Takeover
	for _, h := range l.Holders() {
		need = max(need, h.Takeover)
		if _, foreign := o.foreign[h.Process]; foreign {
			return "", ts, 0
		}
	}
	return deadHeld, l.TS, scaled(need + t.MaxGap + 3*t.PollMax + 2*t.Ping + 2*t.Limit + o.slack())
}

// knows says what is wrong with a holder: that its process does not know of it, that its waiter is
// not told, or that it is dead; "" when it is well.
func (o *oracle) knows(holder catalog.Party, open []*Held) string {
	for _, h := range open {
		if h.guard.Session() == holder.TS && !h.p.dead {
			return ""
		}
	}
	if a := o.underWay(holder.TS); a != nil {
		if a.stood {
			return untold
		}
		return ""
	}
	for _, p := range o.w.slots {
		if p != nil && !p.dead && p.id() == holder.Process {
			return ghost
		}
	}
	return deadHeld
}

// telling is how long it may take until a waiter knows of its grant: as long as the pause between
// two questions, and with a stream no time at all, but where a notice is late the next look at the
// lock tells of it.
func (o *oracle) telling() time.Duration {
	t := o.w.s.Timing
	pause := t.PollMax * 12 / 10
	for _, p := range o.w.slots {
		if p != nil && o.w.store.undelivered(p) {
			pause = max(pause, t.Ping*11/10)
		}
	}
	return scaled(pause + 2*t.Limit + time.Second)
}

// scaled allows for the slowest clock.
func scaled(d time.Duration) time.Duration { return d * 12 / 10 }

// contender returns a living process that waits for a lock.
func (o *oracle) contender(name string) *process {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.w.slots {
		for _, a := range o.attempts[p] {
			if a.name == name && a.waits && !p.dead {
				return p
			}
		}
	}
	return nil
}

// underWay returns the attempt that has not ended and names a session; nil when there is none.
func (o *oracle) underWay(ts bson.ObjectID) *attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, attempts := range o.attempts {
		if p.dead {
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
