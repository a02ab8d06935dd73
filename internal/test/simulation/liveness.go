package simulation

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A pendingState is a temporary state of a lock, which must end in time. For example, a dead holder
// keeps the lock from a waiter.
type pendingState struct {
	name string
	what string
	ts   bson.ObjectID
}

// A contention is a process that waits for a lock or polls it.
type contention struct {
	name string
	p    *process
}

// recordFault records a fault of a process, or of the whole world if p is nil. All time limits of
// I6 and I7 start again.
func (o *oracle) recordFault(p *process) {
	o.faulty, o.lastFault = true, o.w.Now()
	if p != nil {
		o.lastFaultOf[p] = o.w.Now()
	}
}

// slack is a part of each time limit. It allows for a few commands and for the interval between two
// checks.
func (o *oracle) slack() time.Duration { return o.w.s.Timing.Ping/2 + time.Second }

// checkPending checks that no pendingState of a lock lasts longer than its time limit.
func (o *oracle) checkPending(open []*Held) {
	for _, p := range o.w.slots {
		if p != nil && !p.Dead && (p.Paused > 0 || o.w.Now() < p.faultsEnd()) {
			o.recordFault(p)
		}
	}
	now := o.w.Now()
	found, contending := map[pendingState]time.Duration{}, map[contention]time.Duration{}
	begun := func(since time.Duration, before bool) time.Duration {
		if !before {
			return now
		}
		return since
	}
	for _, name := range o.lockNames() {
		contenders, earliest := o.contenders(name), now
		for _, p := range contenders {
			since, before := o.contending[contention{name, p}]
			contending[contention{name, p}] = begun(since, before)
			earliest = min(earliest, begun(since, before))
		}
		for state, limit := range o.expectedStates(name, open, contenders) {
			since, before := o.pending[state]
			found[state] = begun(since, before)
			from := max(found[state], o.lastFault)
			if state.needsContender() {
				from = max(from, earliest)
			}
			if waited := now - from; waited > limit {
				o.violated(state.rule(), "%q has been %s for %v without a fault, at most %v are allowed",
					state.name, state.what, waited, limit)
			}
		}
	}
	o.pending, o.contending = found, contending
}

// These states of a lock must end in time. The texts are parts of a message.
const (
	ghost      = "held by a live process that does not know it"
	ghostWaits = "waited for by a live process that does not know it"
	unnotified = "granted to a waiter that does not know it"
	deadHeld   = "held by a dead process and waited for"
	deadWaits  = "waited for by a dead process before a live one"
	freeHeld   = "free and waited for"
	hungHeld   = "held after its lease expired, and waited for"
	outside    = "waited for without an entry by "
)

func (t pendingState) rule() string {
	if t.what == ghost || t.what == ghostWaits {
		return "I6"
	}
	return "I7"
}

func (t pendingState) needsContender() bool {
	return t.what == deadHeld || t.what == deadWaits || t.what == hungHeld
}

// expectedStates returns the temporary states that a lock is in, each with its time limit.
func (o *oracle) expectedStates(name string, open []*Held,
	contenders []*process) map[pendingState]time.Duration {
	t := o.w.s.Timing
	found := map[pendingState]time.Duration{}
	if o.w.Server.Busy(name) { // the transaction ends in limited time, even if its process is dead
		return found
	}
	tick := scaled(t.Ping*11/10 + 2*t.Limit + o.slack())
	l, _ := o.w.store.lock(name)
	if !l.Held && len(contenders) > 0 {
		found[pendingState{name, freeHeld, l.TS}] =
			scaled(max(t.PollMax*12/10, t.Ping*11/10) + 2*t.Limit + o.slack())
	}
	for _, h := range l.Holders() {
		limit := time.Duration(0) // the state may last
		what := o.problem(h, open)
		switch blocks := o.blocks(l, h, contenders); {
		case what == ghost:
			limit = tick
		case what == unnotified:
			limit = o.grantLimit()
		case what == deadHeld && blocks:
			limit = o.evictionLimit(h)
		case what == hungHeld && blocks:
			limit = o.hungLimit(h.TS)
		}
		if limit > 0 {
			found[pendingState{name, what, h.TS}] = limit
		}
	}
	o.expectQueued(l, found, tick)
	for _, p := range contenders { // a caller with another limit of permits gets no entry
		if name != semaphore && o.waitsFor(p, name) && !slices.ContainsFunc(partiesOf(l),
			func(party catalog.Participant) bool { return p.hadID(party.Process) }) {
			found[pendingState{name: name, what: outside + p.String()}] = scaled(tick + t.MaxGap)
		}
	}
	return found
}

// blocks reports whether a dead holder, or a holder with an expired lease, blocks a contender. The
// only holder of a lock blocks every contender. One of several holders blocks waiters in another
// mode and waiters for a permit.
func (o *oracle) blocks(l catalog.Lock, dead catalog.Participant, contenders []*process) bool {
	if len(l.Holders()) == 1 {
		return len(contenders) > 0
	}
	return slices.ContainsFunc(l.Waiters, func(p catalog.Participant) bool {
		return slices.ContainsFunc(contenders, func(c *process) bool { return c.hadID(p.Process) }) &&
			(p.Mode == catalog.Permit || p.Mode != dead.Mode)
	})
}

// expectQueued adds the states of dead waiters and ghosts in the queue to found. The value of each
// state is its time limit.
func (o *oracle) expectQueued(l catalog.Lock, found map[pendingState]time.Duration,
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
		case owner != nil && o.continues(owner, l.Name):
		case owner != nil && owner.closing == nil:
			found[pendingState{l.Name, ghostWaits, p.TS}] = tick
		case owner == nil && i < alive:
			if limit := o.evictionLimit(p); limit > 0 {
				// The next release passes over a dead waiter that cannot be evicted yet. held is the time for
				// which the present holder has held the lock.
				t := o.w.s.Timing
				held := max(0, o.w.ServerNow().Sub(l.When))
				found[pendingState{l.Name, deadWaits, p.TS}] = min(limit,
					held+scaled(6*t.Ping+t.PollMax+2*t.Limit+o.slack()))
			}
		}
	}
}

// owner returns the running process of a holder or waiter, or nil.
func (o *oracle) owner(party catalog.Participant) *process {
	for _, p := range o.w.slots {
		if p != nil && !p.over() && p.id() == party.Process {
			return p
		}
	}
	return nil
}

// evictionLimit returns the time limit for the eviction of a dead holder or waiter. For a foreign
// manager that runs, it returns 0.
func (o *oracle) evictionLimit(p catalog.Participant) time.Duration {
	t := o.w.s.Timing
	need := max(t.Takeover, p.Takeover)
	if p.Process == foreignProcess {
		if o.w.foreign.up {
			return 0
		}
		// The foreign manager may have pinged after the last fault.
		need = t.Foreign + max(0, o.foreignAlive-o.lastFault)
	}
	return scaled(need + t.MaxGap + 3*t.PollMax + 2*t.Ping + 2*t.Limit + o.slack())
}

// problem returns the temporary state of a holder, or an empty text:
//   - hungHeld: The lease has expired.
//   - unnotified: The process does not know of the grant yet.
//   - ghost: The process does not know that it holds the lock.
//   - deadHeld: The process is dead.
func (o *oracle) problem(holder catalog.Participant, open []*Held) string {
	for _, h := range open {
		switch {
		case h.session() != holder.TS || h.p.over():
		case h.lost && o.leaseExpired(h.p, holder.TS):
			return hungHeld
		default:
			return ""
		}
	}
	a, owner := o.underWay(holder.TS), o.owner(holder)
	switch {
	case a != nil && a.queued && !a.several:
		return unnotified
	case a != nil, owner != nil && owner.closing != nil:
		return ""
	case owner != nil && o.attempt(func(a *attempt) bool { return a.p == owner && a.several }) != nil:
		return "" // LockAll may hold it by the queue entry of a call that has given up
	case owner != nil:
		return ghost
	}
	return deadHeld
}

// grantLimit returns the time limit for a waiter to learn of its grant. The longest pause between
// two polls is PollMax. A waiter with a stream also polls, at intervals of up to a quarter of the
// wait or a ping interval, whichever is shorter.
func (o *oracle) grantLimit() time.Duration {
	t := o.w.s.Timing
	pause := max(t.PollMax, min(t.Ping, o.w.Now()/4)) * 12 / 10
	return scaled(pause + 2*t.Limit + time.Second)
}

// scaled lengthens a duration by the allowed difference of the clock rates.
func scaled(d time.Duration) time.Duration { return d * 12 / 10 }

// contenders returns the running processes with a call that waits for a lock or polls it.
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

// attempt returns the first open call with the given property, or nil.
func (o *oracle) attempt(is func(*attempt) bool) *attempt {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.IndexFunc(o.attempts, is); i >= 0 {
		return o.attempts[i]
	}
	return nil
}

// underWay returns the open call of a running process that uses the session ts, or nil.
func (o *oracle) underWay(ts bson.ObjectID) *attempt {
	return o.attempt(func(a *attempt) bool { return slices.Contains(a.sessions, ts) && !a.p.over() })
}

// continues reports whether a call of the process waits for the lock without a session of its own.
// That call uses the entry of a call that has given up.
func (o *oracle) continues(p *process, name string) bool {
	return o.attempt(func(a *attempt) bool {
		return a.p == p && a.name == name && a.waits && len(a.sessions) == 0
	}) != nil
}
