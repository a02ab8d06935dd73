package simulation

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// This file checks every change of a lock's holders and waiters. It compares the documents before
// and after the change. It repeats the rules of the queue without package queue.

// A turn is one change of a lock document.
type turn struct {
	c        *call
	was, now catalog.Lock
}

// enters returns the session that a command may let in, and leaver the session that it may remove.
func (c *call) enters() (ts bson.ObjectID) {
	if c.op == fault.Acquire || c.op == fault.Enter {
		ts = c.ts
	}
	return ts
}

func (c *call) leaver() (ts bson.ObjectID) {
	switch c.op {
	case fault.Evict:
		return c.from.TS
	case fault.Release:
		return c.ts
	}
	return ts
}

func has(list []catalog.Participant, ts bson.ObjectID) bool { return place(list, ts) >= 0 }

// place returns a session's index in a list, or -1.
func place(list []catalog.Participant, ts bson.ObjectID) int {
	return slices.IndexFunc(list, func(p catalog.Participant) bool { return p.TS == ts })
}

// turned checks a change of a lock document:
//   - the command moves only the sessions that it names (I3)
//   - the first waiters get the lock
//   - the fence rises with every grant (I2)
//   - the holders are compatible
func (o *oracle) turned(t turn) {
	c := t.c
	if c.op == fault.Break {
		return
	}
	o.moved(t)
	if c.op == fault.Acquire && t.was.Held {
		o.violated("I3", "%s took %q, which was not free", c.who(), c.subject)
	}
	var granted []catalog.Participant
	for _, p := range t.now.Holders() {
		if !has(t.was.Holders(), p.TS) {
			granted = append(granted, p)
		}
	}
	if len(granted) > 0 {
		o.due = 0 // the time limits start now
	}
	o.inOrder(t, granted)
	fence := t.was.Fence
	for _, p := range granted {
		if p.Fence <= fence {
			o.violated("I2", "%s raised the fence of %q from %d to %d", c.who(), c.subject, fence,
				p.Fence)
		}
		fence = p.Fence
	}
	o.together(c, t.now.Holders())
	was := partiesOf(t.was)
	if i := place(was, c.leaver()); c.op == fault.Evict && i >= 0 && !has(partiesOf(t.now), was[i].TS) {
		o.takenByLease(c, t.was)
		o.evicted(c, was[i], i < len(t.was.Holders()))
	}
}

// moved checks that a command moves only the sessions that it names (I3).
func (o *oracle) moved(t turn) {
	c, was, now := t.c, partiesOf(t.was), partiesOf(t.now)
	for _, p := range was {
		i := place(now, p.TS)
		switch {
		case i < 0 && p.TS != c.leaver():
			o.violated("I3", "%s took another session than its own out of %q", c.who(), c.subject)
		case i < 0 && c.op != fault.Release && p.Process != c.from.Process:
			o.violated("I3", "%s took another process out of %q than it had watched", c.who(), c.subject)
		case i >= 0 && now[i].Process != p.Process:
			o.violated("I3", "%s changed the process of a session of %q", c.who(), c.subject)
		case has(t.was.Holders(), p.TS) && has(t.now.Waiters, p.TS):
			o.violated("I3", "%s made a waiter of a holder of %q", c.who(), c.subject)
		}
	}
	for _, p := range now {
		if !has(was, p.TS) && (p.TS != c.enters() || p.Process != c.request.Process) {
			o.violated("I3", "%s put another session than its own into %q", c.who(), c.subject)
		}
	}
	if (c.op == fault.Confirm || c.op == fault.SeedFence || c.op == fault.Renew) &&
		!has(t.was.Holders(), c.ts) {
		o.violated("I3", "%s changed the document of another session of %q", c.who(), c.subject)
	}
}

// inOrder checks that no waiter is overtaken: the granted and then the remaining waiters are the
// former queue in its order, with the newcomer at the end.
func (o *oracle) inOrder(t turn, granted []catalog.Participant) {
	line := slices.DeleteFunc(slices.Clone(t.was.Waiters),
		func(p catalog.Participant) bool { return p.TS == t.c.leaver() })
	now, since := partiesOf(t.now), t.c.request.Since
	if i := place(now, t.c.enters()); i >= 0 && !has(partiesOf(t.was), now[i].TS) {
		at := -1
		if !since.IsZero() && since.Before(o.w.ServerNow()) {
			// The newcomer was queued before and was passed over. It enters before the later arrivals.
			// If the server's clock has stepped back before Since, it enters at the end.
			at = slices.IndexFunc(line, func(p catalog.Participant) bool { return p.Since.After(since) })
		}
		if at < 0 {
			at = len(line)
		}
		line = slices.Insert(line, at, now[i])
	}
	same := func(a, b catalog.Participant) bool { return a.TS == b.TS }
	if !slices.EqualFunc(slices.Concat(granted, t.now.Waiters), line, same) {
		o.violated("order", "%s: of %q %d waited, then %d were granted it and %d wait, not "+
			"in their order", t.c.who(), t.c.subject, len(t.was.Waiters), len(granted), len(t.now.Waiters))
	}
}

// together checks that the holders of a lock are compatible.
func (o *oracle) together(c *call, holders []catalog.Participant) {
	if len(holders) < 2 {
		return
	}
	first := holders[0]
	for _, p := range holders {
		switch {
		case p.Mode == catalog.Exclusive || p.Mode != first.Mode:
			o.violated("I1", "%s lets holders of %q in that exclude each other", c.who(), c.subject)
			return
		case p.Mode == catalog.Permit && len(holders) > int(p.Limit):
			o.violated("I1", "%s lets %d holders of %q in, at most %d may be", c.who(), len(holders),
				c.subject, p.Limit)
			return
		}
	}
}

// A lease is the term of a process id, which acknowledged pings extend. The oracle computes the
// term itself. If it asked the process, the process would notice the end.
type lease struct {
	p    *process
	sent clock.Reading // send time of the last acknowledged ping
	over bool
}

// lasts reports whether the process may trust its process id now, by its own clock. A term that has
// expired stays expired (R4).
func (l *lease) lasts() bool {
	if l == nil {
		return false
	}
	c := l.p.config()
	l.over = l.over || clock.HolderElapsed(l.sent, l.p.Clock.Now()) >= c.Takeover-c.Margin
	return !l.over
}

func (o *oracle) acknowledged(c *call) {
	l := o.leases[c.subject]
	if l == nil {
		l = &lease{p: c.p, sent: c.reading}
		o.leases[c.subject] = l
	}
	if l.lasts() {
		l.sent = c.reading
	}
}

// living returns the process that trusts its process id by its own clock, or nil.
func (o *oracle) living(id string) *process {
	l := o.leases[id]
	if l == nil || l.p.Dead || o.w.slots[l.p.Index] != l.p || l.p.id() != id || !l.lasts() {
		return nil
	}
	return l.p
}
