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

// This file checks that the errors and the results of calls are true.

// toldTruth checks the error of an attempt. A holder, limit or deadlock that it names must
// have existed at some instant of the call. It may report a fault only if there was one.
func (o *oracle) toldTruth(n news) {
	a := n.a
	if n.p.misled >= a.since && n.p.misled > 0 {
		return // the process has read an old state
	}
	var held *distlock.HeldError
	var limit *distlock.PermitMismatchError
	var circle *distlock.DeadlockError
	switch {
	case errors.As(n.err, &circle):
		if !o.holdsItself(a, circle.Name) {
			o.violated("truth", "%s is told of a deadlock over %q, which it does not hold", n.p,
				circle.Name)
		}
	case errors.As(n.err, &limit):
		used := func(l catalog.Lock) bool {
			return l.Limit == limit.Recorded && (l.Held || len(l.Waiters) > 0)
		}
		if !o.wasSometime(a, limit.Name, used) {
			o.violated("truth", "%s is told that %q is in use with a limit of %d, and it never was",
				n.p, limit.Name, limit.Recorded)
		}
	case errors.As(n.err, &held):
		party := func(p catalog.Participant) bool { return p.Process == held.Process && p.Who == held.Who }
		in := func(l catalog.Lock) bool { return slices.ContainsFunc(partiesOf(l), party) }
		if held.Process != "" && !o.wasSometime(a, held.Name, in) {
			o.violated("truth", "%s is told that %q is held by %s, and it never was", n.p, held.Name,
				held.Process)
		}
	}
	o.nothingWrong(n)
}

// holdsItself reports whether the caller holds the lock that it waits for.
func (o *oracle) holdsItself(a *attempt, name string) bool {
	l, _ := o.w.store.lock(name)
	return slices.ContainsFunc(a.holds, func(ts bson.ObjectID) bool { return has(l.Holders(), ts) })
}

// wasSometime reports whether a lock was in a state at some instant of a call, or in the two ping
// intervals before the call, because the process may have read the lock earlier.
func (o *oracle) wasSometime(a *attempt, name string, is func(catalog.Lock) bool) bool {
	for _, v := range slices.Backward(o.w.store.past[documentID{catalog.LocksCollection, name}]) {
		if l, bad := catalog.ParseLock(v.raw); v.raw != nil && bad == nil && is(l) {
			return true
		}
		if v.at < a.since-scaled(2*o.w.s.Timing.Ping) {
			return false // this version was the state at that time
		}
	}
	return false
}

// calm reports whether no fault has struck a process in this run.
func (o *oracle) calm(p *process) bool {
	return !o.faulty && o.troubled[p] == 0 && o.w.foreign == nil && o.w.s.World == nil
}

// noGhosts checks that no process finds a ghost in a run without faults.
func (o *oracle) noGhosts() {
	for _, p := range o.w.lives {
		p.mu.Lock()
		m := p.manager
		p.mu.Unlock()
		if m != nil && o.calm(p) && m.Stats().Ghosts > 0 {
			o.violated("truth", "nothing has gone wrong, and %s has found a ghost", p)
		}
	}
}

// nothingWrong checks that no call reports a fault in a run without faults. A command that a
// transaction blocked until its time limit is exempt.
func (o *oracle) nothingWrong(n news) {
	if !o.calm(n.p) || o.w.healed {
		return
	}
	for _, is := range []error{
		distlock.ErrHeld, distlock.ErrPermitMismatch, distlock.ErrDeadlock, context.Canceled,
		distlock.ErrClosed,
	} {
		if errors.Is(n.err, is) {
			return
		}
	}
	o.violated("truth", "nothing has gone wrong, and %s is told of %q: %v", n.p, n.a.name, n.err)
}

// heldThroughout checks a Release that returned nil: the session held the lock from the grant to
// the release, and the release ended the tenure.
func (o *oracle) heldThroughout(h *Held, called time.Duration) {
	switch left, gone := o.left[h.session()]; {
	case !gone:
		o.violated("truth", "%s was told that it released %q, which it holds", h.p, h.name)
	case left < called:
		o.violated("truth", "%s was told that it held %q to the end, which was given away %v before "+
			"Release was called", h.p, h.name, called-left)
	}
}

// lostForNothing checks the reason for the first loss of a guard: its term has expired, its process
// is condemned, or the store shows that it has lost the lock.
func (o *oracle) lostForNothing(h *Held, why error) {
	id := h.guard.Process()
	ping, ok := o.w.store.ping(id)
	_, gone := o.left[h.session()]
	if !gone && o.leases[id].lasts() && !o.ranOut(h.p, h.session()) && (!ok || ping.Condemned == nil) {
		o.violated("lost", "%s has lost %q although its pings are answered and nobody took it: %v", h.p,
			h.name, why)
	}
}
