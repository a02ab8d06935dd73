package study

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file has the commands of the old generations. They match documents in the store of this
// module.

// A document is a document of config.locks or config.lockpings. It is nil if it does not exist.
type document bson.D

func (d document) value(field string) any {
	for _, e := range d {
		if e.Key == field {
			return e.Value
		}
	}
	return nil
}

func (d document) text(field string) string { s, _ := d.value(field).(string); return s }

func (d document) id(field string) bson.ObjectID {
	id, _ := d.value(field).(bson.ObjectID)
	return id
}

// state returns the state of a lock, or 0 without a state.
func (d document) state() int32 { n, _ := d.value("state").(int32); return n }

// ping returns the date of a ping in milliseconds, or 0 for a missing document.
func (d document) ping() bson.DateTime { t, _ := d.value("ping").(bson.DateTime); return t }

// matches reports whether the document has the given values.
func (d document) matches(want bson.D) bool {
	return !slices.ContainsFunc(want, func(e bson.E) bool { return d.value(e.Key) != e.Value })
}

// with returns a copy of the document with the fields of set.
func (d document) with(set bson.D) document {
	next := slices.Clone(d)
	for _, e := range set {
		if i := slices.IndexFunc(next, func(o bson.E) bool { return o.Key == e.Key }); i >= 0 {
			next[i] = e
		} else {
			next = append(next, e)
		}
	}
	return next
}

func date(t time.Time) bson.DateTime { return bson.NewDateTimeFromTime(t) }

// objectID returns a new ObjectID from the seconds of a process's clock and a number.
func (w *world) objectID(p *process) bson.ObjectID {
	var id bson.ObjectID
	w.ids++
	binary.BigEndian.PutUint32(id[:], uint32(p.now().Unix()))
	binary.BigEndian.PutUint32(id[8:], uint32(w.ids)<<8|uint32(p.Index))
	return id
}

// read returns the matching documents of a collection.
func (w *world) read(collection string, match bson.D) (found []document) {
	for _, raw := range w.Server.Documents(collection) {
		if d := w.parse(raw); d.matches(match) {
			found = append(found, d)
		}
	}
	return found
}

// parse parses a document. It caches the last results, because most documents are parsed
// repeatedly.
func (w *world) parse(raw bson.Raw) document {
	if d, known := w.parsed[string(raw)]; known {
		return d
	}
	var d document
	_ = bson.Unmarshal(raw, (*bson.D)(&d)) // the store has marshaled it
	if len(w.parsed) >= 100 {
		clear(w.parsed)
	}
	w.parsed[string(raw)] = d
	return d
}

func (w *world) put(collection string, d document) {
	if err := w.Server.Put(collection, bson.D(d)); err != nil {
		panic("study: " + err.Error())
	}
}

func byID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

// free is the change that frees a lock.
var free = bson.D{{Key: "state", Value: int32(0)}}

// A line is a step of an old generation: the process, and the line of the server's source that the
// step follows.
type line struct {
	*process
	source string
}

func (p line) find(kind Kind, collection string, match bson.D) (found []document, err error) {
	err = p.send(p.source, kind, "find "+collection, none, func() error {
		found = p.w.read(collection, match)
		return nil
	}, func() string { return p.w.record.brief(append(found, nil)[0]) })
	return found, err
}

// findOne returns the document with an _id, or nil if it does not exist.
func (p line) findOne(collection, id string) (document, error) {
	found, err := p.find(Read, collection, byID(id))
	return append(found, nil)[0], err
}

// reread is like findOne, for a lock that the process has just written.
func (p line) reread(name string) (document, error) {
	found, err := p.find(Reread, locks, byID(name))
	return append(found, nil)[0], err
}

// update sets fields of the matching documents and returns their number. An upsert inserts the
// document if no document matches.
func (p line) update(kind Kind, collection string, match, set bson.D, upsert bool) (n int,
	err error) {
	text := func() string { return value(match) + " set " + value(set) }
	err = p.send(p.source, kind, "update "+collection, text, func() error {
		n = len(p.w.change(collection, match, set, upsert))
		return nil
	}, func() string { return fmt.Sprintf("n: %d", n) })
	return n, err
}

// change carries out an update on the store and returns the changed documents.
func (w *world) change(collection string, match, set bson.D, upsert bool) (changed []document) {
	for _, d := range w.read(collection, match) {
		changed = append(changed, d.with(set))
	}
	if len(changed) == 0 && upsert {
		changed = append(changed, document(match).with(set))
	}
	for _, d := range changed {
		w.put(collection, d)
	}
	return changed
}

// insert adds a document. It returns errDuplicate if the _id exists.
func (p line) insert(kind Kind, collection string, d document) error {
	return p.send(p.source, kind, "insert "+collection, func() string { return value(bson.D(d)) },
		func() error {
			if len(p.w.read(collection, bson.D{d[0]})) > 0 {
				return errDuplicate
			}
			p.w.put(collection, d)
			return nil
		}, nil)
}

// findAndModify changes the first document that matches one of the queries and returns it, or nil
// without a match. If upsert is set and nothing matches, it inserts a document with the _id of the
// first query, or returns errDuplicate if that _id exists.
func (p line) findAndModify(kind Kind, collection string, queries []bson.D, set bson.D,
	upsert bool) (d document, err error) {
	text := func() string {
		var asked []string
		for _, q := range queries {
			asked = append(asked, value(q))
		}
		return strings.Join(asked, " or ") + " set " + value(set)
	}
	err = p.send(p.source, kind, "findAndModify "+collection, text, func() error {
		for _, q := range queries {
			if found := p.w.read(collection, q); len(found) > 0 {
				d = found[0].with(set)
				p.w.put(collection, d)
				return nil
			}
		}
		if !upsert {
			return nil
		}
		key := queries[0][:1]
		if len(p.w.read(collection, key)) > 0 {
			return errDuplicate
		}
		d = document(key).with(set)
		p.w.put(collection, d)
		return nil
	}, func() string { return p.w.record.brief(d) })
	return d, err
}

// ping writes the ping of a process, by its own clock.
func (p line) ping(id string) error {
	_, err := p.update(Ping, pings, byID(id), bson.D{{Key: "ping", Value: date(p.now())}}, true)
	return err
}

// prune deletes pings that are four days old by the process's clock. It keeps the pings of
// processes that the given locks name.
func (p line) prune(locks []document) error {
	n, before := 0, p.now().Add(-4*24*time.Hour)
	text := func() string { return "{_id: in no lock, ping: before " + value(date(before)) + "}" }
	return p.send(p.source, Clean, "remove "+pings, text, func() error {
		for _, d := range p.w.read(pings, nil) {
			named := slices.ContainsFunc(locks,
				func(l document) bool { return l.text("process") == d.text("_id") })
			if !named && d.ping() < date(before) {
				p.w.Server.Remove(pings, d.text("_id"))
				n++
			}
		}
		return nil
	}, func() string { return fmt.Sprintf("%d removed", n) })
}

// serverStatus returns the clock of the first server or of a mirror, and the server's term.
func (p line) serverStatus(mirror int) (at time.Time, election int, err error) {
	err = p.send(p.source, Clock, "serverStatus", none, func() error {
		if at, election = p.w.ServerNow(), p.w.Primary; mirror > 0 {
			at = p.w.True().Add(p.w.mirrors[mirror-1])
		}
		return nil
	}, func() string { return at.Format(time.TimeOnly) })
	return at, election, err
}

const (
	locks = catalog.LocksCollection
	pings = catalog.PingsCollection
)

func none() string { return "" }
