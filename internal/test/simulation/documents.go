package simulation

import (
	"bytes"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

func (o *oracle) lockWritten(c *call, before, after bson.Raw, err error) {
	was, now := o.w.store.read(c.subject, before), o.w.store.read(c.subject, after)
	if removes := c.op == fault.Release || c.op == fault.Evict; removes && err == nil &&
		has(partiesOf(now.lock), c.leaving()) {
		o.violated("I6", "%s: the session is still in the document of %q", c.who(), c.subject)
	}
	switch {
	case bytes.Equal(before, after):
	case !now.ok || before != nil && !was.ok:
		o.violated("I3", "%s changed a damaged document", c.who())
	default:
		o.w.log.add("%s", describe(now.lock))
		o.checkChange(lockChange{c, was.lock, now.lock})
	}
}

func (o *oracle) pingWritten(c *call, before, after bson.Raw) {
	if bytes.Equal(before, after) {
		return
	}
	if c.subject == foreignProcess && (c.op == fault.Condemn || c.op == fault.Witness) {
		o.violated("I3", "%s changed the ping of the foreign process %s", c.who(), c.subject)
	}
	if before == nil {
		// A ping that arrives after Close creates the document again.
		o.latePings[c.subject] = c.op == fault.Ping && c.answered
		return
	}
	was, bad := catalog.ParsePing(before)
	now, _ := catalog.ParsePing(after) // zero if the document was removed
	switch {
	case bad != nil:
		o.violated("I3", "%s changed a damaged ping document", c.who())
	case was.Condemned != nil:
		o.violated("I3", "%s changed the ping document of a condemned process", c.who())
	case c.op == fault.Condemn && (c.watched == nil || c.watched.Seq != was.Seq):
		o.violated("I3", "%s condemned a process at another seq than the watched one", c.who())
	case c.op == fault.Witness && (c.watched.Seq != was.Seq || now.Seq != was.Seq):
		o.violated("I3", "%s recorded an observation at another seq than the watched one", c.who())
	case c.op == fault.Ping && now.Seq <= was.Seq:
		o.violated("I3", "%s changed seq from %d to %d", c.who(), was.Seq, now.Seq)
	}
}

// checkEvicted checks rule I4 for an eviction. The guard of the evicted session must be lost. If
// the session has no guard, its lease or the term of its process must have expired. An eviction by
// lease is not checked if the session has no guard yet and its first renewal has no answer. A
// foreign holder must have been silent for the part leastRate of its takeover time.
func (o *oracle) checkEvicted(c *call, held catalog.Participant, holds bool) {
	if holds {
		o.w.done.Stats["takeovers"]++
	} else {
		o.w.done.Stats["waiters evicted"]++
	}
	if c.from.Waits { // a waiter that is passed over holds no lock and can enter again
		if holds {
			o.violated("I4", "%s passed over a holder of %q", c.who(), c.subject)
		}
		return
	}
	if h := o.guardOf(held.TS); h != nil && o.trusted(h) {
		o.violated("I4", "%s evicted the holder of %q before its deadline: %s trusts fence %d",
			c.p, c.subject, h.p, h.guard.Fence())
	} else if p := o.trusting(held.Process); p != nil && h == nil && !o.leaseExpired(p, held.TS) &&
		(c.from.Renewal == 0 || o.guardLeases[held.TS] != nil) {
		o.violated("I4", "%s evicted %s from %q, although its term lasts by its own clock", c.who(), p,
			c.subject)
	}
	silent := o.w.Now() - o.foreignAlive
	if need := time.Duration(float64(o.w.s.Timing.Foreign) * leastRate); silent < need &&
		held.Process == foreignProcess {
		o.violated("I4", "%s evicted the foreign holder of %q after %v of silence, want %v",
			c.p, c.subject, silent, o.w.s.Timing.Foreign)
	}
}

// An evicted foreign holder must have been silent for this part of the takeover time, in true time.
// The part is below 1, because the clock of the contender may be fast.
const leastRate = 0.8

// checkNotTrusted checks rule I1 at an acquisition: no live process trusts a guard of the acquired
// lock. The last argument names the new holder.
func (o *oracle) checkNotTrusted(name, by string) {
	for _, h := range o.guards() {
		if h.name == name && !h.p.Dead && o.trusted(h) {
			o.violated("I1", "%s acquires %q, which %s trusts with fence %d", by, name, h.p, h.guard.Fence())
		}
	}
}

// recordHolders records the time at which sessions stop holding a lock.
func (o *oracle) recordHolders(before, after []catalog.Participant) {
	for _, p := range before {
		o.left[p.TS] = o.w.Now()
	}
	for _, p := range after {
		delete(o.left, p.TS)
	}
}

// partiesBy returns the holders and waiters of a lock that belong to a process, except the sessions
// in tooLate.
func (o *oracle) partiesBy(l catalog.Lock, p *process) []catalog.Participant {
	return slices.DeleteFunc(partiesOf(l), func(party catalog.Participant) bool {
		return !p.hadID(party.Process) || o.tooLate[party.TS]
	})
}

// checkClosed checks rule I8: no lock names a closed process, and its ping document is removed.
func (o *oracle) checkClosed() {
	for _, p := range o.w.processes {
		if p.Dead {
			continue
		}
		for _, l := range o.w.store.locks() {
			if len(o.partiesBy(l, p)) > 0 &&
				(p.closing == nil || p.closing.err == nil && !p.closing.excused) {
				o.violated("I8", "%s has closed and still holds or waits for %q", p, l.Name)
			}
		}
		// A ping that arrives after Close remains until another process prunes it.
		if ping, ok := o.w.store.ping(p.id()); ok && ping.Condemned == nil && p.closing == nil &&
			!o.latePings[p.id()] {
			o.violated("I8", "%s has closed, and its ping still exists", p)
		}
	}
}
