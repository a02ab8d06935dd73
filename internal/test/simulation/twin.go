package simulation

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// This file implements the restore of a machine's snapshot: a process that continues under the id
// of another, with its numbers and its locks. Its Manager is a new one, so the process id and the
// sessions of its guards are replaced on the way to the store.

// A snapshot is the state of a process at the instant of the snapshot.
type snapshot struct {
	seq   int64                   // of its last ping
	locks map[string]catalog.Lock // held exclusively; fixed

	mu   sync.Mutex // guards mine
	mine map[string]bson.ObjectID
}

// snapshotOf takes a snapshot of the process that pings under an id.
func (w *world) snapshotOf(id string) *snapshot {
	s := &snapshot{locks: map[string]catalog.Lock{}, mine: map[string]bson.ObjectID{}}
	if p, bad := catalog.ParsePing(w.Server.Document(catalog.PingsCollection, id)); bad == nil {
		s.seq = p.Seq
	}
	for _, raw := range w.Server.Documents(catalog.LocksCollection) {
		if l, bad := catalog.ParseLock(raw); bad == nil && l.Held && l.Process == id &&
			len(l.Sharers) == 0 {
			s.locks[l.Name] = l
		}
	}
	return s
}

// wake gives an attempt the guard that it has from the snapshot: once for each lock, under the id
// of the snapshot.
func (o *port) wake(r catalog.Request) (catalog.Lock, bool) {
	s := o.p.snapshot
	if s == nil || o.p.local(o.p.twin) != r.Process {
		return catalog.Lock{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.locks[r.Name]
	if _, woken := s.mine[r.Name]; !ok || woken {
		return l, false
	}
	s.mine[r.Name] = r.TS
	l.TS, l.Process = r.TS, r.Process
	return l, true
}

// stored returns the session that the store knows.
func (s *snapshot) stored(ts bson.ObjectID) bson.ObjectID {
	if s == nil {
		return ts
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, mine := range s.mine {
		if mine == ts {
			return s.locks[name].TS
		}
	}
	return ts
}

// own returns the session that the process knows; ok is false if it has yet to wake.
func (s *snapshot) own(name string, ts bson.ObjectID) (own bson.ObjectID, ok bool) {
	if s == nil || s.locks[name].TS != ts {
		return ts, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok = s.mine[name]
	return own, ok
}

// held returns the sessions as the process knows them.
func (s *snapshot) held(sessions []catalog.HeldSession) []catalog.HeldSession {
	var known []catalog.HeldSession
	for _, h := range sessions {
		ts, ok := s.own(h.Name, h.TS)
		if h.TS = ts; ok {
			known = append(known, h)
		}
	}
	return known
}

// number returns the lead of the seq in the store over that of the process, under the id of the
// snapshot.
func (o *port) number(b catalog.Heartbeat) int64 {
	if s := o.p.snapshot; s != nil && b.Process == o.p.twin {
		return s.seq
	}
	return 0
}

// local returns the process id as the process knows it.
func (p *process) local(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.twin != "" && id == p.twin && len(p.ids) > 0 {
		return p.ids[0]
	}
	return id
}

// metTwin notes that a process has learned of its twin.
func (p *process) metTwin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met = true
}

// mayRelease reports whether a process that sends a release may still take the sessions under its
// id for its own: it has not learned of a twin, and the term of its last acknowledged ping lasts.
func (o *oracle) mayRelease(p *process) bool {
	p.mu.Lock()
	met := p.met
	p.mu.Unlock()
	id := p.id()
	if p.twin != "" {
		id = p.twin
	}
	l := o.leases[tenant{p, id}]
	return !met && l != nil && l.lasts(p)
}

// releasedTwins checks a release of a lock that a twin trusts. It is allowed to a process that has
// yet to learn of the twin; not afterwards, and not after its own guards were lost by the clock.
func (o *oracle) releasedTwins(c *call) {
	h := o.guardBeside(c)
	switch {
	case c.op != fault.Release || h == nil || !o.trusted(h):
	case c.unaware:
		o.forgiven[c.ts] = true
	default:
		o.violated("twin", "%s took %q from its twin %s, which trusts it", c.p, c.subject, h.p)
	}
}

// guardBeside returns the guard that another process has by the session of a command.
func (o *oracle) guardBeside(c *call) *Held {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.open {
		if h.session() == c.ts && h.p != c.p {
			return h
		}
	}
	return nil
}
