package simulation

import (
	"bytes"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// This file checks every write. It compares the documents before and after the write.

// lockWritten checks a write to a lock document.
func (o *oracle) lockWritten(c *call, before, after bson.Raw, err error) {
	was, now := o.w.store.read(c.subject, before), o.w.store.read(c.subject, after)
	if leaves := c.op == fault.Release || c.op == fault.Evict; leaves && err == nil &&
		has(partiesOf(now.lock), c.leaver()) {
		o.violated("I6", "%s: the session that left %q still stands there", c.who(), c.subject)
	}
	switch {
	case bytes.Equal(before, after):
	case !now.ok || before != nil && !was.ok:
		o.violated("I3", "%s changed a document that nobody can read", c.who())
	default:
		o.w.log.add("%s", shown(now.lock))
		o.turned(turn{c, was.lock, now.lock})
	}
}

// pingWritten checks a write to a ping document:
//   - A condemned document does not change.
//   - A process is condemned only in the watched state, and a foreign process never.
//   - The ping's number rises.
func (o *oracle) pingWritten(c *call, before, after bson.Raw) {
	if bytes.Equal(before, after) {
		return
	}
	if c.subject == foreignProcess && (c.op == fault.Condemn || c.op == fault.Witness) {
		o.violated("I3", "%s wrote into the ping of %s, which knows nothing of that", c.who(), c.subject)
	}
	if before == nil {
		// A late ping may arrive after Close has removed the document.
		o.strays[c.subject] = c.op == fault.Ping && c.answered
		return
	}
	was, bad := catalog.ParsePing(before)
	now, _ := catalog.ParsePing(after) // zero if the document was removed
	switch {
	case bad != nil:
		o.violated("I3", "%s changed a ping document that nobody can read", c.who())
	case was.Condemned != nil:
		o.violated("I3", "%s changed the ping document of a condemned process", c.who())
	case c.op == fault.Condemn && (c.watched == nil || c.watched.Seq != was.Seq):
		o.violated("I3", "%s condemned another ping than it had watched", c.who())
	case c.op == fault.Witness && (c.watched.Seq != was.Seq || now.Seq != was.Seq):
		o.violated("I3", "%s left a sight of another ping than it had seen", c.who())
	case c.op == fault.Ping && now.Seq <= was.Seq:
		o.violated("I3", "%s put seq from %d to %d", c.who(), was.Seq, now.Seq)
	}
}

// evicted checks I4: before the takeover the loser has stopped trusting its lock or its place.
func (o *oracle) evicted(c *call, held catalog.Participant, holds bool) {
	if holds {
		o.w.done.Stats["takeovers"]++
	} else {
		o.w.done.Stats["waiters evicted"]++
	}
	if c.from.Waits { // a waiter that is passed over holds no lock, and enters again if it lives
		if holds {
			o.violated("I4", "%s passed a holder of %q over", c.who(), c.subject)
		}
		return
	}
	if h := o.guardOf(held.TS); h != nil && o.trusted(h) {
		o.violated("I4", "%s took %q, which %s trusts with fence %d, from before its deadline",
			c.p, c.subject, h.p, h.guard.Fence())
	} else if p := o.living(held.Process); p != nil && h == nil && !o.ranOut(p, held.TS) {
		o.violated("I4", "%s took %s out of %q, who lives by its own clock", c.who(), p, c.subject)
	}
	silent := o.w.Now() - o.foreignSign
	if need := time.Duration(float64(o.w.s.Timing.Foreign) * leastRate); silent < need &&
		held.Process == foreignProcess {
		o.violated("I4", "%s took %q from a foreign holder that was silent for %v only, not %v",
			c.p, c.subject, silent, o.w.s.Timing.Foreign)
	}
}

// leastRate is the fraction of the foreign takeover time that passes in true time before a
// takeover. The fastest clock shows the whole time no earlier.
const leastRate = 0.8

// notTrusted checks that no process trusts a lock that somebody else gets now (I1).
func (o *oracle) notTrusted(name, by string) {
	for _, h := range o.guards() {
		if h.name == name && !h.p.Dead && o.trusted(h) {
			o.violated("I1", "%s has %q, which %s trusts with fence %d", by, name, h.p, h.guard.Fence())
		}
	}
}

// changed records which sessions have stopped holding a lock. It forgets those that hold the lock
// again.
func (o *oracle) changed(before, after []catalog.Participant) {
	for _, p := range before {
		o.left[p.TS] = o.w.Now()
	}
	for _, p := range after {
		delete(o.left, p.TS)
	}
}

// partiesBy returns the parties of a lock that belong to a process and did not come after its end.
func (o *oracle) partiesBy(l catalog.Lock, p *process) []catalog.Participant {
	return slices.DeleteFunc(partiesOf(l), func(party catalog.Participant) bool {
		return !p.named(party.Process) || o.posthumous[party.TS]
	})
}

// closed checks I8: after an orderly close no lock names the process, and its ping is removed.
func (o *oracle) closed() {
	for _, p := range o.w.lives {
		if p.Dead {
			continue
		}
		for _, l := range o.w.store.locks() {
			if len(o.partiesBy(l, p)) > 0 && (p.closing == nil || p.closing.err == nil && !p.closing.excused) {
				o.violated("I8", "%s has closed and still holds or waits for %q", p, l.Name)
			}
		}
		// Pruning removes a ping that arrives after Close.
		if ping, ok := o.w.store.ping(p.id()); ok && ping.Condemned == nil && p.closing == nil &&
			!o.strays[p.id()] {
			o.violated("I8", "%s has closed and its ping is still there", p)
		}
	}
}
