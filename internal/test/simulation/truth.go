package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// checkError checks the error of a failed attempt. A holder, limit or deadlock in the error must
// have existed during the call.
func (o *oracle) checkError(a *attempt, err error) {
	if a.p.lastOldRead >= a.since && a.p.lastOldRead > 0 {
		return // the process has read an old state
	}
	var held *distlock.HeldError
	var limit *distlock.PermitMismatchError
	var circle *distlock.DeadlockError
	switch {
	case errors.As(err, &circle):
		if !o.holdsItself(a, circle.Name) {
			o.violated("truth", "%s gets a deadlock error for %q, which it does not hold", a.p,
				circle.Name)
		}
	case errors.As(err, &limit):
		used := func(l catalog.Lock) bool {
			return l.Limit == limit.Recorded && (l.Held || len(l.Waiters) > 0)
		}
		if !o.existed(a, limit.Name, used) {
			o.violated("truth", "%s gets an error that %q has the limit %d, which it did not have",
				a.p, limit.Name, limit.Recorded)
		}
	case errors.As(err, &held):
		party := func(p catalog.Participant) bool { return p.Process == held.Process && p.Who == held.Who }
		in := func(l catalog.Lock) bool { return slices.ContainsFunc(partiesOf(l), party) }
		if held.Process != "" && !o.existed(a, held.Name, in) {
			o.violated("truth", "%s gets an error that %q is held by %s, which was not in it", a.p, held.Name,
				held.Process)
		}
	}
	o.checkNoFaultReported(a, err)
}

// holdsItself reports whether the caller of an attempt holds a lock.
func (o *oracle) holdsItself(a *attempt, name string) bool {
	l, _ := o.w.store.lock(name)
	return slices.ContainsFunc(a.holds, func(ts bson.ObjectID) bool { return has(l.Holders(), ts) })
}

// existed reports whether a lock had the given property during a call or in the two ping intervals
// before. The process may have read the lock during these intervals. If the process was cut off
// then, its last read may be older.
func (o *oracle) existed(a *attempt, name string, is func(catalog.Lock) bool) bool {
	earliest := a.since - scaled(2*o.w.s.Timing.Ping)
	if a.p.faultsEnd() >= earliest {
		earliest = 0
	}
	for _, v := range slices.Backward(o.w.store.past[documentID{catalog.LocksCollection, name}]) {
		if l, bad := catalog.ParseLock(v.raw); v.raw != nil && bad == nil && is(l) {
			return true
		}
		if v.at < earliest {
			return false // this version was the state at that time
		}
	}
	return false
}

// withoutFaults reports whether the process and the world have been free of faults so far. A
// foreign manager counts as a fault, and so does a package built on the lock.
func (o *oracle) withoutFaults(p *process) bool {
	return !o.faulty && o.lastFaultOf[p] == 0 && o.w.foreign == nil && o.w.s.World == nil
}

func (o *oracle) checkNoGhosts() {
	for _, p := range o.w.processes {
		p.mu.Lock()
		m := p.manager
		p.mu.Unlock()
		if m != nil && o.withoutFaults(p) && m.Stats().Ghosts > 0 {
			o.violated("truth", "%s has found a ghost without a fault", p)
		}
	}
}

// checkNoFaultReported checks the error of an attempt in a run without faults. Errors like ErrHeld
// are allowed. A command that a transaction blocks until its time limit counts as a fault.
func (o *oracle) checkNoFaultReported(a *attempt, err error) {
	if !o.withoutFaults(a.p) || o.w.faultsOver {
		return
	}
	for _, is := range []error{
		distlock.ErrHeld, distlock.ErrPermitMismatch, distlock.ErrDeadlock, context.Canceled,
		distlock.ErrClosed,
	} {
		if errors.Is(err, is) {
			return
		}
	}
	o.violated("truth", "%s fails to acquire %q without a fault: %v", a.p, a.name, err)
}

// checkRelease checks a Release that returned nil: the session held the lock until the call of
// Release, and no longer holds it.
func (o *oracle) checkRelease(h *Held, called time.Duration) {
	switch left, gone := o.left[h.session()]; {
	case !gone:
		o.violated("truth", "%s has released %q without an error, and still holds it", h.p, h.name)
	case left < called:
		o.violated("truth", "%s has released %q without an error, but had lost it %v before", h.p, h.name,
			called-left)
	}
}

// checkLoss checks that the loss of a guard has a reason: an expired term or lease, a condemned
// process, or a session that no longer holds the lock in the store.
func (o *oracle) checkLoss(h *Held, why error) {
	id := h.guard.Process()
	ping, ok := o.w.store.ping(id)
	_, gone := o.left[h.session()]
	if !gone && o.terms[id].lasts() && !o.leaseExpired(h.p, h.session()) &&
		(!ok || ping.Condemned == nil) {
		o.violated("lost", "%s has lost %q without a reason: %v", h.p,
			h.name, why)
	}
}
