package simulation

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// The checks in this file implement the rules of the queue independently. They use neither package
// queue nor package transition.

type lockChange struct {
	c        *call
	was, now catalog.Lock
}

// entering returns the session that a command may add to a lock.
func (c *call) entering() (ts bson.ObjectID) {
	switch c.op {
	case fault.Acquire, fault.Enter, fault.Release:
		ts = c.request.TS
	}
	return ts
}

// leaving returns the session that a command may remove from a lock.
func (c *call) leaving() (ts bson.ObjectID) {
	switch c.op {
	case fault.Evict:
		return c.from.TS
	case fault.Release:
		return c.ts
	}
	return ts
}

func has(list []catalog.Participant, ts bson.ObjectID) bool { return place(list, ts) >= 0 }

func place(list []catalog.Participant, ts bson.ObjectID) int {
	return slices.IndexFunc(list, func(p catalog.Participant) bool { return p.TS == ts })
}

// checkChange checks a change of a lock document:
//   - The command adds and removes only the session that it names (I3).
//   - No waiter is overtaken.
//   - The fence rises with every acquisition (I2).
//   - The holders are compatible (I1).
//   - An evicted session is not trusted (I4).
func (o *oracle) checkChange(t lockChange) {
	c := t.c
	if c.op == fault.Break {
		return
	}
	o.checkMoves(t)
	if c.op == fault.Acquire && t.was.Held {
		o.violated("I3", "%s acquired %q, which was not free", c.who(), c.subject)
	}
	var granted []catalog.Participant
	for _, p := range t.now.Holders() {
		if !has(t.was.Holders(), p.TS) {
			granted = append(granted, p)
		}
	}
	if len(granted) > 0 {
		o.nextCheck = 0 // time limits start with this change
	}
	o.checkOrder(t, granted)
	fence := t.was.Fence
	for _, p := range granted {
		if p.Fence <= fence {
			o.violated("I2", "%s changed the fence of %q from %d to %d", c.who(), c.subject, fence,
				p.Fence)
		}
		fence = p.Fence
	}
	o.checkCompatible(c, t.now.Holders())
	was := partiesOf(t.was)
	i := place(was, c.leaving())
	if c.op == fault.Evict && i >= 0 && !has(partiesOf(t.now), was[i].TS) {
		o.checkRenewal(c, t.was)
		o.checkEvicted(c, was[i], i < len(t.was.Holders()))
	}
}

// checkMoves checks rule I3: a command changes only the session that it names.
func (o *oracle) checkMoves(t lockChange) {
	c, was, now := t.c, partiesOf(t.was), partiesOf(t.now)
	for _, p := range was {
		i := place(now, p.TS)
		switch {
		case i < 0 && p.TS != c.leaving():
			o.violated("I3", "%s removed another session than its own from %q", c.who(), c.subject)
		case i < 0 && c.op != fault.Release && p.Process != c.from.Process:
			o.violated("I3", "%s removed another process than the watched one from %q", c.who(), c.subject)
		case i >= 0 && now[i].Process != p.Process:
			o.violated("I3", "%s changed the process of a session of %q", c.who(), c.subject)
		case has(t.was.Holders(), p.TS) && has(t.now.Waiters, p.TS):
			o.violated("I3", "%s turned a holder of %q into a waiter", c.who(), c.subject)
		}
	}
	for _, p := range now {
		if !has(was, p.TS) && (p.TS != c.entering() || p.Process != c.request.Process) {
			o.violated("I3", "%s added another session than its own to %q", c.who(), c.subject)
		}
	}
	if (c.op == fault.Confirm || c.op == fault.SeedFence || c.op == fault.Renew) &&
		!has(t.was.Holders(), c.ts) {
		o.violated("I3", "%s changed the document of another session of %q", c.who(), c.subject)
	}
}

// checkOrder checks that no waiter is overtaken. A new waiter goes to the end of the queue. Grants
// go to the first waiters. The other waiters keep their order.
func (o *oracle) checkOrder(t lockChange, granted []catalog.Participant) {
	queue := slices.DeleteFunc(slices.Clone(t.was.Waiters),
		func(p catalog.Participant) bool { return p.TS == t.c.leaving() })
	now, since := partiesOf(t.now), t.c.request.Since
	if i := place(now, t.c.entering()); i >= 0 && !has(partiesOf(t.was), now[i].TS) {
		at := -1
		if !since.IsZero() && since.Before(o.w.ServerNow()) {
			// A waiter that was passed over enters again at its old place. It goes ahead of all waiters that
			// entered after Since, the time of its first entry. If Since is in the future, because the
			// server's clock has stepped back, the waiter goes to the end of the queue.
			at = slices.IndexFunc(queue, func(p catalog.Participant) bool { return p.Since.After(since) })
		}
		if at < 0 {
			at = len(queue)
		}
		queue = slices.Insert(queue, at, now[i])
	}
	same := func(a, b catalog.Participant) bool { return a.TS == b.TS }
	if !slices.EqualFunc(slices.Concat(granted, t.now.Waiters), queue, same) {
		o.violated("order", "%s changed the order of the queue of %q: %d waiters before, "+
			"%d grants and %d waiters after", t.c.who(), t.c.subject, len(t.was.Waiters), len(granted),
			len(t.now.Waiters))
	}
}

// checkCompatible checks rule I1 in a lock document: a lock has one exclusive holder, or several
// shared holders, or at most as many permits as its limit.
func (o *oracle) checkCompatible(c *call, holders []catalog.Participant) {
	if len(holders) < 2 {
		return
	}
	first := holders[0]
	for _, p := range holders {
		switch {
		case p.Mode == catalog.Exclusive || p.Mode != first.Mode:
			o.violated("I1", "%s lets in holders of %q that exclude each other", c.who(), c.subject)
			return
		case p.Mode == catalog.Permit && len(holders) > int(p.Limit):
			o.violated("I1", "%s lets in %d holders of %q, the limit is %d", c.who(), len(holders),
				c.subject, p.Limit)
			return
		}
	}
}

// A term is the time for which a process may trust the locks of one process id. The oracle computes
// it from the acknowledged pings. It does not ask the process, because the process would then
// notice the end of its term.
type term struct {
	p    *process
	sent clock.Reading // send time of the last acknowledged ping
	over bool
}

// lasts reports whether the term lasts by the clock of the process. An expired term stays expired
// (R4 in docs/safety.md).
func (t *term) lasts() bool {
	if t == nil {
		return false
	}
	c := t.p.config()
	t.over = t.over || clock.HolderElapsed(t.sent, t.p.Clock.Now()) >= c.Takeover-c.Margin
	return !t.over
}

func (o *oracle) acknowledged(c *call) {
	l := o.terms[c.subject]
	if l == nil {
		l = &term{p: c.p, sent: c.reading}
		o.terms[c.subject] = l
	}
	if l.lasts() {
		l.sent = c.reading
	}
}

// trusting returns the live process with the given id. It returns nil if there is no such process
// or the term of the id has expired.
func (o *oracle) trusting(id string) *process {
	l := o.terms[id]
	if l == nil || l.p.Dead || o.w.slots[l.p.Index] != l.p || l.p.id() != id || !l.lasts() {
		return nil
	}
	return l.p
}
