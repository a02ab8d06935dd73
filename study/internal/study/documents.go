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

// A document is a lock document or a ping document. It is nil if the store contains no such
// document.
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

func (d document) state() int32 { n, _ := d.value("state").(int32); return n }

// ping returns the date of a ping in milliseconds, or 0 for a missing document.
func (d document) ping() bson.DateTime { t, _ := d.value("ping").(bson.DateTime); return t }

func (d document) matches(want bson.D) bool {
	return !slices.ContainsFunc(want, func(e bson.E) bool { return d.value(e.Key) != e.Value })
}

// The result is a copy of d with the values in set. All other fields keep their values.
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

// objectID returns a new ObjectID with the time of the process's clock.
func (w *world) objectID(p *process) bson.ObjectID {
	var id bson.ObjectID
	w.ids++
	binary.BigEndian.PutUint32(id[:], uint32(p.now().Unix()))
	binary.BigEndian.PutUint32(id[8:], uint32(w.ids)<<8|uint32(p.Index))
	return id
}

func (w *world) read(collection string, match bson.D) (found []document) {
	for _, raw := range w.Server.Documents(collection) {
		if d := parse(raw); d.matches(match) {
			found = append(found, d)
		}
	}
	return found
}

func parse(raw bson.Raw) (d document) {
	_ = bson.Unmarshal(raw, (*bson.D)(&d)) // the store has marshaled it
	return d
}

func (w *world) put(collection string, d document) {
	if err := w.Server.Put(collection, bson.D(d)); err != nil {
		panic("study: " + err.Error())
	}
}

// pairs returns a document. Its arguments are names and values in turn.
func pairs(all ...any) (d bson.D) {
	for i := 0; i < len(all); i += 2 {
		d = append(d, bson.E{Key: all[i].(string), Value: all[i+1]})
	}
	return d
}

func byID(id string) bson.D { return pairs("_id", id) }

var free = pairs("state", int32(0))

// A line is a step of an old generation. It consists of the process and of the source line that the
// step imitates.
type line struct {
	*process
	source string
}

func (p line) find(kind Kind, collection string, match bson.D) (found []document, err error) {
	err = p.send(kind, "find "+collection, "", func() error {
		found = p.w.read(collection, match)
		return nil
	}, func() string { return p.w.record.brief(append(found, nil)[0]) })
	return found, err
}

// findOne returns the document with an _id, or nil if it does not exist.
func (p line) findOne(kind Kind, collection, id string) (document, error) {
	found, err := p.find(kind, collection, byID(id))
	return append(found, nil)[0], err
}

// update sets fields of the matching documents and returns their number. An upsert inserts the
// document if no document matches.
func (p line) update(kind Kind, collection string, match, set bson.D, upsert bool) (n int,
	err error) {
	text := value(match) + " set " + value(set)
	err = p.send(kind, "update "+collection, text, func() error {
		changed, err := p.w.change(collection, match, set, upsert)
		n = len(changed)
		return err
	}, func() string { return fmt.Sprintf("n: %d", n) })
	return n, err
}

// change sets fields of the matching documents. Without a match, an upsert inserts a document with
// the _id of the query. If that _id exists, it returns errDuplicate.
func (w *world) change(collection string, match, set bson.D, upsert bool) (changed []document,
	err error) {
	for _, d := range w.read(collection, match) {
		changed = append(changed, d.with(set))
		w.put(collection, d.with(set))
	}
	if len(changed) == 0 && upsert {
		changed = append(changed, document(match[:1]).with(set))
		err = w.insert(collection, changed[0])
	}
	return changed, err
}

// insert adds a lock document. It returns errDuplicate if the _id exists.
func (p line) insert(d document) error {
	return p.send(Insert, "insert "+locks, value(bson.D(d)), func() error {
		return p.w.insert(locks, d)
	}, nil)
}

func (w *world) insert(collection string, d document) error {
	if len(w.read(collection, bson.D{d[0]})) > 0 {
		return errDuplicate
	}
	w.put(collection, d)
	return nil
}

// findAndModify is like update, but takes alternative queries and returns the document that it has
// changed, or nil. At most one document matches.
func (p line) findAndModify(kind Kind, collection string, queries []bson.D, set bson.D,
	upsert bool) (d document, err error) {
	var asked []string
	for _, q := range queries {
		asked = append(asked, value(q))
	}
	text := strings.Join(asked, " or ") + " set " + value(set)
	err = p.send(kind, "findAndModify "+collection, text, func() (err error) {
		for _, q := range queries {
			var changed []document
			if changed, err = p.w.change(collection, q, set, upsert); len(changed) > 0 {
				d = changed[0]
				break
			}
		}
		return err
	}, func() string { return p.w.record.brief(d) })
	return d, err
}

// ping writes the ping of a process, with the time of its own clock.
func (p line) ping(id string) error {
	_, err := p.update(Ping, pings, byID(id), pairs("ping", date(p.now())), true)
	return err
}

// prune deletes pings that are four days old by the process's clock. It keeps the ping of each
// process that one of the given lock documents names.
func (p line) prune(locks []document) error {
	n, before := 0, date(p.now().Add(-4*24*time.Hour))
	text := "{_id: in no lock, ping: before " + value(before) + "}"
	return p.send(Clean, "remove "+pings, text, func() error {
		for _, d := range p.w.read(pings, nil) {
			named := slices.ContainsFunc(locks,
				func(l document) bool { return l.text("process") == d.text("_id") })
			if !named && d.ping() < before {
				p.w.Server.Remove(pings, d.text("_id"))
				n++
			}
		}
		return nil
	}, func() string { return fmt.Sprintf("%d removed", n) })
}

// serverStatus returns the time of a config server and the number of elections so far. The first
// server is mirror 0.
func (p line) serverStatus(mirror int) (at time.Time, election int, err error) {
	err = p.send(Clock, "serverStatus", "", func() error {
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
