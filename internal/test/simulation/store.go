package simulation

import (
	"bytes"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
)

// A store contains the documents of a world, and their past states.
type store struct {
	*memcatalog.Catalog
	w      *world
	parsed map[string]parsed    // last parsed lock, by name
	past   map[string][]version // past states of every written document, by collection and _id

	streams []*stream // open streams, the oldest first
}

// A version is a document's state from an instant on. Its raw is nil if the document was deleted.
type version struct {
	at      time.Duration
	raw     bson.Raw
	holders []bson.ObjectID // the lock's holders
}

// A picture identifies the old state that an old primary or a lagging member returns, by its
// instant. primary is the name of an old primary that believes it is still the primary, or "".
type picture struct {
	at      time.Duration
	primary string
}

func key(collection, id string) string { return collection + "/" + id }

// note records the new state of a document.
func (s *store) note(collection, id string, raw bson.Raw) {
	if s.past == nil {
		s.past = map[string][]version{}
	}
	k := key(collection, id)
	now := version{at: s.w.Now(), raw: raw}
	if collection == catalog.LocksCollection {
		for _, p := range s.read(id, raw).holders() {
			now.holders = append(now.holders, p.TS)
		}
		if versions := s.past[k]; len(versions) > 0 {
			s.w.judge.changed(versions[len(versions)-1].holders, now.holders)
		}
	}
	s.past[k] = append(s.past[k], now)
}

// document returns a copy of a document, which the caller may change. It is empty if the document
// does not exist.
func (s *store) document(collection, id string) bson.D {
	var doc bson.D
	if raw := s.Document(collection, id); raw != nil {
		_ = bson.Unmarshal(raw, &doc) // the store has marshaled it
	}
	return doc
}

// asOf returns the state of a document at an earlier instant.
func (s *store) asOf(collection, id string, at time.Duration) bson.Raw {
	var raw bson.Raw
	for _, v := range s.past[key(collection, id)] {
		if v.at > at {
			break
		}
		raw = v.raw
	}
	return raw
}

// look reads a lock and its parties' pings, in the present or an old state. The server time is the
// clock of the server that answers.
func (s *store) look(name string, old *picture) (catalog.Snapshot, error) {
	look, err := catalog.LookAt(background, s.Catalog, name)
	if err != nil {
		return look, err
	}
	if look.ServerTime.IsZero() { // the document does not exist
		server, err := s.Hello(background)
		if err != nil {
			return look, err
		}
		look.ServerTime, look.Primary = server.Time, server.Primary
	}
	if old != nil {
		past := catalog.Snapshot{ServerTime: look.ServerTime, Primary: look.Primary}
		if old.primary != "" {
			past.Primary = old.primary
		}
		look = past
		if raw := s.asOf(catalog.LocksCollection, name, old.at); raw != nil {
			l, bad := catalog.ParseLock(raw)
			if look.LockErr = bad; bad == nil {
				look.Lock = &l
				look.Ping = s.pingAsOf(l.Process, old.at)
				look.Pings = map[string]catalog.PingState{}
				for _, p := range partiesOf(l) {
					look.Pings[p.Process] = catalog.PingState{Ping: s.pingAsOf(p.Process, old.at)}
				}
			}
		}
	}
	return look, nil
}

// held lists the sessions of a process, in the present or an old state.
func (s *store) held(process string, old *picture) ([]catalog.HeldSession, error) {
	if old == nil {
		return s.Catalog.Held(background, process)
	}
	var sessions []catalog.HeldSession
	for _, name := range s.w.judge.names {
		l, _ := s.lockAsOf(name, old)
		sessions = append(sessions, l.SessionsOf(process)...)
	}
	slices.SortFunc(sessions, catalog.HeldSession.Compare)
	return sessions, nil
}

// pingAsOf returns the ping of a process at an earlier instant, or nil.
func (s *store) pingAsOf(process string, at time.Duration) *catalog.Ping {
	raw := s.asOf(catalog.PingsCollection, process, at)
	if p, bad := catalog.ParsePing(raw); raw != nil && bad == nil {
		return &p
	}
	return nil
}

// lockAsOf returns a lock in the present or an old state. ok is false if no readable document
// exists.
func (s *store) lockAsOf(name string, old *picture) (l catalog.Lock, ok bool) {
	raw := s.Document(catalog.LocksCollection, name)
	if old != nil {
		raw = s.asOf(catalog.LocksCollection, name, old.at)
	}
	if raw == nil {
		return catalog.Lock{Name: name}, false
	}
	read := s.read(name, raw)
	return read.lock, read.ok
}

// read parses a lock document. The caller must not change the result.
func (s *store) read(name string, raw bson.Raw) parsed {
	last := s.parsed[name]
	if raw == nil || !bytes.Equal(last.raw, raw) {
		l, bad := catalog.ParseLock(raw)
		last = parsed{raw, l, bad == nil}
		s.parsed[name] = last
	}
	return last
}

// A parsed is a lock document with its parsed content. It is cached, because most documents are
// read repeatedly before they change.
type parsed struct {
	raw  bson.Raw
	lock catalog.Lock
	ok   bool
}

// holders returns the holders of a readable document.
func (p parsed) holders() []catalog.Participant {
	if p.raw == nil || !p.ok {
		return nil
	}
	return p.lock.Holders()
}

func (s *store) attend(names []string, old *picture) (map[string]catalog.Snapshot, error) {
	looks := map[string]catalog.Snapshot{}
	for _, name := range names {
		l, err := s.look(name, old)
		if err != nil {
			return nil, err
		}
		if l.Lock != nil || l.LockErr != nil {
			looks[name] = l
		}
	}
	return looks, nil
}

// heldOrFree returns those of the named locks that are free, were granted to the process, or are
// also named in lines.
func (s *store) heldOrFree(process string, names, lines []string,
	old *picture) (locks []catalog.Lock) {
	for _, name := range names {
		l, ok := s.lockAsOf(name, old)
		if ok && (!l.Held || len(l.GrantsOf(process)) > 0 || slices.Contains(lines, name)) {
			locks = append(locks, l)
		}
	}
	return locks
}

// partiesOf returns a lock's holders, then its waiters.
func partiesOf(l catalog.Lock) []catalog.Participant {
	return slices.Concat(l.Holders(), l.Waiters)
}

// placeOf returns a session's index in the queue, or -1.
func placeOf(l catalog.Lock, ts bson.ObjectID) int {
	return slices.IndexFunc(l.Waiters, func(p catalog.Participant) bool { return p.TS == ts })
}

// put writes a document like an operator or a foreign program.
func (s *store) put(collection, id string, doc bson.D) error {
	if err := s.Put(collection, doc); err != nil {
		return err
	}
	s.note(collection, id, s.Document(collection, id))
	return nil
}

// removeFree deletes the documents of free locks.
func (w *world) removeFree() {
	for _, raw := range w.Server.Documents(catalog.LocksCollection) {
		l, bad := catalog.ParseLock(raw)
		if bad == nil && !l.Held && !w.Server.Busy(l.Name) {
			w.Server.Remove(catalog.LocksCollection, l.Name)
			w.store.note(catalog.LocksCollection, l.Name, nil)
			w.log.add("lock document %q is deleted", l.Name)
		}
	}
}
