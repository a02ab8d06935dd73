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

// mover returns the session that a command may let in and the session that it may remove.
func (t turn) mover() (in, out bson.ObjectID) {
	switch t.c.op {
	case fault.Acquire, fault.Enter:
		in = t.c.ts
	case fault.Evict:
		out = t.c.from.TS
	case fault.Release:
		out = t.c.ts
	}
	return in, out
}

func exceptFor(list []catalog.Participant, ts bson.ObjectID) []catalog.Participant {
	return slices.DeleteFunc(slices.Clone(list),
		func(p catalog.Participant) bool { return p.TS == ts })
}

func has(list []catalog.Participant, ts bson.ObjectID) bool {
	return slices.ContainsFunc(list, func(p catalog.Participant) bool { return p.TS == ts })
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
	in, out := t.mover()
	o.moved(t, in, out)
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
	o.inOrder(t, granted, in, out)
	o.hadTurns(t, len(granted))
	fence := t.was.Fence
	for _, p := range granted {
		if p.Fence <= fence {
			o.violated("I2", "%s raised the fence of %q from %d to %d", c.who(), c.subject, fence,
				p.Fence)
		}
		fence = p.Fence
	}
	o.together(c, t.now.Holders())
	for _, p := range partiesOf(t.was) {
		if c.op == fault.Evict && p.TS == out && !has(partiesOf(t.now), out) {
			o.takenByLease(c, t.was)
			o.evicted(c, p, has(t.was.Holders(), out))
		}
	}
}

// moved checks that a command moves only the sessions that it names (I3).
func (o *oracle) moved(t turn, in, out bson.ObjectID) {
	c, was, now := t.c, partiesOf(t.was), partiesOf(t.now)
	for _, p := range was {
		after, there := find(now, p.TS)
		switch {
		case !there && p.TS != out:
			o.violated("I3", "%s took another session than its own out of %q", c.who(), c.subject)
		case !there && c.op != fault.Release && p.Process != c.from.Process:
			o.violated("I3", "%s took another process out of %q than it had watched", c.who(), c.subject)
		case there && after.Process != p.Process:
			o.violated("I3", "%s changed the process of a session of %q", c.who(), c.subject)
		case has(t.was.Holders(), p.TS) && has(t.now.Waiters, p.TS):
			o.violated("I3", "%s made a waiter of a holder of %q", c.who(), c.subject)
		}
	}
	for _, p := range now {
		if !has(was, p.TS) && (p.TS != in || p.Process != c.request.Process) {
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
func (o *oracle) inOrder(t turn, granted []catalog.Participant, in, out bson.ObjectID) {
	line := exceptFor(t.was.Waiters, out)
	newcomer, came := find(partiesOf(t.now), in)
	switch {
	case !came || has(partiesOf(t.was), in):
	case !t.c.request.Since.IsZero() && t.c.request.Since.Before(o.w.ServerNow()):
		// The newcomer was queued before and was passed over. It enters before the later arrivals.
		// If the server's clock has stepped back before Since, it enters at the end.
		place := slices.IndexFunc(line,
			func(p catalog.Participant) bool { return p.Since.After(t.c.request.Since) })
		if place < 0 {
			place = len(line)
		}
		line = slices.Insert(line, place, newcomer)
	default:
		line = append(line, newcomer)
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

// done checks that a successful release or eviction has removed the session from the lock.
func (o *oracle) done(c *call, after bson.Raw) {
	if after == nil || c.op != fault.Release && c.op != fault.Evict {
		return
	}
	_, out := turn{c: c}.mover()
	if l := o.w.store.read(c.subject, after); l.ok && has(partiesOf(l.lock), out) {
		o.violated("I6", "%s: the session that left %q still stands there", c.who(), c.subject)
	}
}

// A tenant is a process under one of its process ids.
type tenant struct {
	p  *process
	id string
}

// A lease is the term of a process id, which acknowledged pings extend. The oracle computes the
// term itself. If it asked the process, the process would notice the end.
type lease struct {
	sent clock.Reading // send time of the last acknowledged ping
	over bool
}

// lasts reports whether a process may trust its process id now, by its own clock. A term that has
// expired stays expired (R4).
func (l *lease) lasts(p *process) bool {
	c := p.config()
	l.over = l.over || clock.HolderElapsed(l.sent, p.Clock.Now()) >= c.Takeover-c.Margin
	return !l.over
}

func (o *oracle) acknowledged(c *call) {
	of := tenant{c.p, c.subject}
	l := o.leases[of]
	if l == nil {
		if old := c.p.before(c.subject); o.leases[tenant{c.p, old}] != nil {
			o.renamed(c.p, old)
		}
		l = &lease{sent: c.reading}
		o.leases[of] = l
	}
	if l.lasts(c.p) {
		l.sent = c.reading
	}
}

// living returns the process that trusts its process id by its own clock, or nil.
func (o *oracle) living(id string) *process {
	for _, p := range o.w.slots {
		if p == nil || p.Dead || p.twin != "" {
			continue
		}
		if l := o.leases[tenant{p, id}]; p.id() == id && l != nil && l.lasts(p) {
			return p
		}
	}
	return nil
}

func find(list []catalog.Participant, ts bson.ObjectID) (catalog.Participant, bool) {
	i := slices.IndexFunc(list, func(p catalog.Participant) bool { return p.TS == ts })
	if i < 0 {
		return catalog.Participant{}, false
	}
	return list[i], true
}
