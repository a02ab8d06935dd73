package simulation

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
)

// A store contains the documents of a run and their earlier states.
type store struct {
	*memcatalog.Catalog
	w      *world
	parsed map[string]parsed        // last parsed lock, by name
	past   map[documentID][]version // past states of every written document

	streams []*stream // open streams, the oldest first
}

type documentID struct{ collection, id string }

// A version is a state of a document. The document has this state from the time at. The field raw
// is nil if the document was deleted.
type version struct {
	at      time.Duration
	raw     bson.Raw
	holders []catalog.Participant // the lock's holders
}

// An oldState identifies the state of all documents at an instant. primary is the name of the
// server that returns it.
type oldState struct {
	at      time.Duration
	primary string
}

func (s *store) note(collection, id string, raw bson.Raw) {
	d := documentID{collection, id}
	now := version{at: s.w.Now(), raw: raw}
	if collection == catalog.LocksCollection {
		now.holders = s.read(id, raw).lock.Holders()
		if versions := s.past[d]; len(versions) > 0 {
			s.w.oracle.recordHolders(versions[len(versions)-1].holders, now.holders)
		}
	}
	s.past[d] = append(s.past[d], now)
}

// document returns a copy of a document. It is empty if the document does not exist.
func (s *store) document(collection, id string) bson.D {
	var doc bson.D
	if raw := s.Document(collection, id); raw != nil {
		_ = bson.Unmarshal(raw, &doc) // the store has marshaled it
	}
	return doc
}

// asOf returns a store with the documents of an old state. The server's clock of that store shows
// the present time.
func (s *store) asOf(old oldState) *memcatalog.Catalog {
	then := memcatalog.New(memcatalog.Options{Now: s.w.ServerNow, Primary: old.primary})
	for d, versions := range s.past {
		later := slices.IndexFunc(versions, func(v version) bool { return v.at > old.at })
		if later < 0 {
			later = len(versions)
		}
		if later == 0 || versions[later-1].raw == nil {
			continue
		}
		var doc bson.D
		_ = bson.Unmarshal(versions[later-1].raw, &doc) // the store has marshaled it
		_ = then.Put(d.collection, doc)
	}
	return then
}

// lock returns a lock. ok is false if the lock document is missing or damaged.
func (s *store) lock(name string) (l catalog.Lock, ok bool) {
	read := s.read(name, s.Document(catalog.LocksCollection, name))
	return read.lock, read.ok
}

// ping returns the ping document of a process. ok is false if the document is missing or damaged.
func (s *store) ping(process string) (p catalog.Ping, ok bool) {
	p, bad := catalog.ParsePing(s.Document(catalog.PingsCollection, process))
	return p, bad == nil
}

// A parsed is a lock document and the lock in it. If the document is damaged, the lock contains
// only the name. The store keeps the last parsed lock of each name, because most documents are
// parsed several times before they change.
type parsed struct {
	raw  bson.Raw
	lock catalog.Lock
	ok   bool
}

// read parses a lock document. The result must not be changed.
func (s *store) read(name string, raw bson.Raw) parsed {
	if raw == nil {
		return parsed{lock: catalog.Lock{Name: name}}
	}
	last := s.parsed[name]
	if !bytes.Equal(last.raw, raw) {
		l, bad := catalog.ParseLock(raw)
		if bad != nil {
			l = catalog.Lock{Name: name}
		}
		last = parsed{raw, l, bad == nil}
		s.parsed[name] = last
	}
	return last
}

func (s *store) locks() (all []catalog.Lock) {
	for _, raw := range s.Documents(catalog.LocksCollection) {
		if l, bad := catalog.ParseLock(raw); bad == nil {
			all = append(all, l)
		}
	}
	return all
}

func describe(l catalog.Lock) string {
	var b strings.Builder
	for _, p := range l.Holders() {
		fmt.Fprintf(&b, "%s holds it with fence %d, ", p.Process, p.Fence)
	}
	for _, p := range l.Waiters {
		fmt.Fprintf(&b, "%s waits, ", p.Process)
	}
	return fmt.Sprintf("%q: %sfence %d", l.Name, &b, l.Fence)
}

// partiesOf returns the holders of a lock, followed by its waiters.
func partiesOf(l catalog.Lock) []catalog.Participant {
	return slices.Concat(l.Holders(), l.Waiters)
}

// put writes a document as a foreign program does.
func (s *store) put(collection string, id string, doc bson.D) {
	if err := s.Put(collection, doc); err != nil {
		s.w.oracle.violated("setup", "%v", err)
	}
	s.note(collection, id, s.Document(collection, id))
}

func (s *store) remove(collection, id string) {
	s.Remove(collection, id)
	s.note(collection, id, nil)
}

func (s *store) removeFree() {
	for _, l := range s.locks() {
		if !l.Held && !s.Busy(l.Name) {
			s.remove(catalog.LocksCollection, l.Name)
			s.w.log.add("lock document %q is deleted", l.Name)
		}
	}
}
