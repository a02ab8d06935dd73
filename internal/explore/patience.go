package explore

import (
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
	raw := o.w.mem.Document(catalog.LocksCollection, name)
	var l catalog.Lock
	if raw != nil {
		var bad *catalog.MalformedError
		if l, bad = catalog.ParseLock(raw); bad != nil {
			return
		}
	}
	what, limit := o.expect(name, l, open)
	was := o.slow[name]
	if what == "" || was.what != what || was.ts != l.TS {
		o.slow[name] = waitingFor{what: what, ts: l.TS, since: o.w.now()}
		return
	}
	if waited := o.w.now() - max(was.since, o.troubles); what != "" && waited > limit {
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
	deadHeld = "held by the dead and waited for"
	freeHeld = "free and waited for"
)

// expect says what should happen to a lock and within which time; "" when nothing need happen.
func (o *oracle) expect(name string, l catalog.Lock, open []*Held) (string, time.Duration) {
	t := o.w.s.Timing
	if !l.Held {
		if o.contender(name) == nil {
			return "", 0
		}
		return freeHeld, scaled(t.PollMax*12/10 + 2*t.Limit + o.slack())
	}
	for _, h := range open {
		if h.guard.Session() == l.TS && !h.p.dead {
			return "", 0
		}
	}
	if o.underWay(l.TS) {
		return "", 0
	}
	for _, p := range o.w.slots {
		if p != nil && !p.dead && p.id() == l.Process {
			return ghost, scaled(t.Ping*11/10 + 2*t.Limit + o.slack())
		}
	}
	if o.contender(name) == nil {
		return "", 0
	}
	need := max(t.Takeover, l.Takeover)
	if _, foreign := o.foreign[l.Process]; foreign {
		return "", 0
	}
	return deadHeld, scaled(need + t.MaxGap + 3*t.PollMax + t.Ping + 2*t.Limit + o.slack())
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

// underWay reports whether an attempt that has not ended names a session.
func (o *oracle) underWay(ts bson.ObjectID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, attempts := range o.attempts {
		if p.dead {
			continue
		}
		for _, a := range attempts {
			for _, own := range a.sessions {
				if own == ts {
					return true
				}
			}
		}
	}
	return false
}
