package simulation

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// This file checks every write. It compares the documents before and after the write.

// A state is the document that a command writes, as it was at one instant.
type state struct {
	collection string
	raw        bson.Raw
}

// before returns the document that a command is about to write.
func (o *oracle) before(c *call) state {
	s := state{collection: catalog.LocksCollection}
	switch c.op {
	case fault.Ping, fault.Condemn, fault.Witness, fault.RemovePing:
		s.collection = catalog.PingsCollection
	}
	if c.writes && c.op != opWrite && c.subject != "" {
		s.raw = o.w.Server.Document(s.collection, c.subject)
	}
	return s
}

// applied checks the effect of a write (I3, I4).
func (o *oracle) applied(c *call, before state, err error) {
	if !c.writes || c.op == opWrite || c.subject == "" {
		return
	}
	after := o.w.Server.Document(before.collection, c.subject)
	if before.collection == catalog.LocksCollection && err == nil {
		o.done(c, after)
	}
	if bytes.Equal(before.raw, after) {
		return
	}
	o.releasedTwins(c)
	if before.collection == catalog.PingsCollection {
		o.w.store.note(before.collection, c.subject, after)
		o.pingChanged(c, before.raw, after)
		return
	}
	was := parsed{lock: catalog.Lock{Name: c.subject}, ok: true}
	if before.raw != nil {
		was = o.w.store.read(c.subject, before.raw)
	}
	o.w.store.note(before.collection, c.subject, after)
	now := o.w.store.read(c.subject, after)
	if !was.ok || !now.ok {
		o.violated("I3", "%s changed a document that nobody can read", c.who())
		return
	}
	o.turned(turn{c, was.lock, now.lock})
}

// pingChanged checks a change of a ping document:
//   - A condemned document does not change.
//   - A process is condemned only in the watched state, and a foreign process never.
//   - The ping's number rises.
func (o *oracle) pingChanged(c *call, raw, after bson.Raw) {
	if _, foreign := o.foreign[c.subject]; foreign &&
		(c.op == fault.Condemn || c.op == fault.Witness) {
		o.violated("I3", "%s wrote into the ping of foreign %s, which knows nothing of that", c.who(),
			c.subject)
	}
	if raw == nil {
		// A late ping may arrive after Close has removed the document.
		o.strays[c.subject] = c.op == fault.Ping && c.answered
		return
	}
	was, bad := catalog.ParsePing(raw)
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

// renamed checks that a process had a reason to change its process id: the id was condemned, its
// ping was removed, or the process has a twin.
func (o *oracle) renamed(p *process, old string) {
	twins := slices.ContainsFunc(o.w.s.Processes, func(p Process) bool { return p.Twin })
	raw := o.w.Server.Document(catalog.PingsCollection, old)
	if ping, bad := catalog.ParsePing(raw); !twins && raw != nil && bad == nil &&
		ping.Condemned == nil {
		o.violated("identity", "%s has given up %s without a reason", p, old)
	}
}

// evicted checks I4: before the takeover the loser has stopped trusting its lock or its place.
func (o *oracle) evicted(c *call, held catalog.Participant, holds bool) {
	if c.from.Waits { // a waiter that is passed over holds no lock, and enters again if it lives
		if holds {
			o.violated("I4", "%s passed a holder of %q over", c.who(), c.subject)
		}
		o.w.done.Evicted++
		return
	}
	if holds {
		o.w.done.Takeovers++
	} else {
		o.w.done.Evicted++
	}
	if h := o.guardOf(held.TS); h != nil && o.trusted(h) {
		o.violated("I4", "%s took %q, which %s trusts with fence %d, from before its deadline",
			c.p, c.subject, h.p, h.guard.Fence())
	} else if p := o.living(held.Process); p != nil && h == nil && !o.ranOut(p, held.TS) {
		o.violated("I4", "%s took %s out of %q, who lives by its own clock", c.who(), p, c.subject)
	}
	sign, foreign := o.foreign[held.Process]
	silent := o.w.Now() - sign
	if need := time.Duration(float64(o.w.s.Timing.Foreign) * leastRate); foreign && silent < need {
		o.violated("I4", "%s took %q from a foreign holder that was silent for %v only, not %v",
			c.p, c.subject, silent, o.w.s.Timing.Foreign)
	}
}

// leastRate is the fraction of the foreign takeover time that passes in true time before a
// takeover. The fastest clock shows the whole time no earlier.
const leastRate = 0.8

// foreignLives records a sign of life of a foreign process: a ping or an acquisition.
func (o *oracle) foreignLives(process string) { o.foreign[process] = o.w.Now() }

// foreignTook checks that no process trusts a lock when a foreign process takes the lock (I1).
func (o *oracle) foreignTook(process, name string) {
	o.mu.Lock()
	open := slices.Clone(o.open)
	o.mu.Unlock()
	for _, h := range open {
		if h.name == name && !h.p.Dead && o.trusted(h) {
			o.violated("I1", "foreign %s took %q, which %s trusts with fence %d", process, name, h.p,
				h.guard.Fence())
		}
	}
}

// changed records which sessions have stopped holding a lock. It forgets those that hold the lock
// again.
func (o *oracle) changed(before, after []bson.ObjectID) {
	for _, ts := range before {
		if !slices.Contains(after, ts) {
			o.left[ts] = o.w.Now()
		}
	}
	for _, ts := range after {
		delete(o.left, ts)
	}
}

// closed checks I8: after an orderly close no lock names the process, and its ping is removed.
func (o *oracle) closed() {
	for _, raw := range o.w.Server.Documents(catalog.LocksCollection) {
		l, bad := catalog.ParseLock(raw)
		if bad != nil {
			continue
		}
		for _, p := range o.w.lives {
			if p.Dead || o.w.twinned(p) {
				continue
			}
			for i, party := range partiesOf(l) {
				if does := "holds"; p.named(party.Process) && !o.posthumous[party.TS] &&
					(p.closing == nil || p.closing.err == nil) {
					if i >= len(l.Holders()) {
						does = "waits for"
					}
					o.violated("I8", "%s has closed and still %s %q", p, does, l.Name)
				}
			}
		}
	}
	for _, p := range o.w.lives {
		raw := o.w.Server.Document(catalog.PingsCollection, p.id())
		if p.Dead || p.closing != nil || raw == nil || o.strays[p.id()] {
			continue // pruning removes a ping that arrives after Close
		}
		if ping, bad := catalog.ParsePing(raw); bad == nil && ping.Condemned == nil {
			o.violated("I8", "%s has closed and its ping is still there", p)
		}
	}
}

// labelOf returns the label in the field who: <process>:<label>:<random>.
func labelOf(who string) string {
	parts := strings.Split(who, ":")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}
