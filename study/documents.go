package main

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

// matches reports whether all fields of one of the queries have the same values in d.
func (d document) matches(queries []bson.D) bool {
	return slices.ContainsFunc(queries, func(want bson.D) bool {
		return !slices.ContainsFunc(want, func(e bson.E) bool { return d.value(e.Key) != e.Value })
	})
}

// with returns a copy of d with the values in set. All other fields keep their values.
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

// objectID returns a new ObjectID.
func (w *world) objectID() (id bson.ObjectID) {
	w.ids++
	binary.BigEndian.PutUint64(id[:], w.ids)
	return id
}

func (w *world) read(collection string, queries ...bson.D) (found []document) {
	for _, raw := range w.Server.Documents(collection) {
		if d := decode(raw); d.matches(queries) {
			found = append(found, d)
		}
	}
	return found
}

func decode(raw bson.Raw) (d document) {
	_ = bson.Unmarshal(raw, (*bson.D)(&d)) // the store has marshaled it
	return d
}

func (w *world) put(collection string, d document) {
	if err := w.Server.Put(collection, bson.D(d)); err != nil {
		panic("study: " + err.Error())
	}
}

// pairs returns a document. Its arguments alternate between names and values.
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

// find returns the document that matches a query, or nil if it does not exist.
func (p line) find(kind Kind, collection string, query bson.D) (d document, err error) {
	err = p.send(kind, "find "+collection, "", func() error {
		d = append(p.w.read(collection, query), nil)[0]
		return nil
	}, func() string { return d.brief() })
	return d, err
}

func (p line) findOne(kind Kind, collection, id string) (document, error) {
	return p.find(kind, collection, byID(id))
}

// update sets fields of the lock documents that match a query, and returns their number.
func (p line) update(kind Kind, query, set bson.D) (n int, err error) {
	return p.modify(kind, "update", locks, set, false, query)
}

// findAndModify is like update, but takes alternative queries. At most one document matches.
// Without a match, an upsert inserts a document.
func (p line) findAndModify(kind Kind, set bson.D, upsert bool, queries ...bson.D) (int, error) {
	return p.modify(kind, "findAndModify", locks, set, upsert, queries...)
}

// ping writes the ping of a process, with the time of its own clock.
func (p line) ping(id string) error {
	_, err := p.modify(Ping, "update", pings, pairs("ping", date(p.now())), true, byID(id))
	return err
}

func (p line) modify(kind Kind, op, collection string, set bson.D, upsert bool,
	queries ...bson.D) (n int, err error) {
	var asked []string
	for _, q := range queries {
		asked = append(asked, value(q))
	}
	text := strings.Join(asked, " or ") + " set " + value(set)
	err = p.send(kind, op+" "+collection, text, func() (err error) {
		n, err = p.w.change(collection, set, upsert, queries...)
		return err
	}, func() string { return fmt.Sprintf("n: %d", n) })
	return n, err
}

// change sets fields of the documents that match one of the queries, and returns their number.
// Without a match, an upsert inserts a document with the _id of the first query. If that _id
// exists, it returns errDuplicate.
func (w *world) change(collection string, set bson.D, upsert bool, queries ...bson.D) (int, error) {
	found := w.read(collection, queries...)
	for _, d := range found {
		w.put(collection, d.with(set))
	}
	if len(found) == 0 && upsert {
		return 1, w.insert(collection, document(queries[0][:1]).with(set))
	}
	return len(found), nil
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
