package simulation

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// This file implements the restore of a machine's snapshot. The restored process continues with
// another process's id, numbers and locks. In fact it has a new Manager, so the simulation puts the
// process id and the sessions of the snapshot into its commands.

// A snapshot is the state of a process at the instant of the snapshot.
type snapshot struct {
	seq   int64                   // seq of its last ping
	locks map[string]catalog.Lock // exclusively held locks; never changes

	mu   sync.Mutex // guards mine
	mine map[string]bson.ObjectID
}

// snapshotOf takes a snapshot of the process that pings under id.
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

// wake gives an attempt the guard that the process has from the snapshot. It does so once for each
// lock, and only under the id of the snapshot.
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

// stored returns the session in the store for a session of the process.
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

// own returns the session of the process for a session in the store. ok is false if the process has
// not woken the lock yet.
func (s *snapshot) own(name string, ts bson.ObjectID) (own bson.ObjectID, ok bool) {
	if s == nil || s.locks[name].TS != ts {
		return ts, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own, ok = s.mine[name]
	return own, ok
}

// held converts sessions in the store to sessions of the process.
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

// number returns the difference between the stored seq and the process's seq, for the id of the
// snapshot.
func (o *port) number(b catalog.Heartbeat) int64 {
	if s := o.p.snapshot; s != nil && b.Process == o.p.twin {
		return s.seq
	}
	return 0
}

// local returns the process's own id for a process id in the store.
func (p *process) local(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.twin != "" && id == p.twin && len(p.ids) > 0 {
		return p.ids[0]
	}
	return id
}

func (p *process) metTwin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.met = true
}

// mayRelease reports whether a process that sends a release may still believe that it owns the
// sessions under its id. That is so until it learns of a twin, or until the term of its last
// acknowledged ping ends.
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

// releasedTwins checks a release of a lock that a twin trusts. Such a release is allowed only
// before the process learns of the twin, and before its own guards expire.
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

// guardBeside returns another process's guard with the session of a command, or nil.
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
