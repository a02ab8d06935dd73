package simulation

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A Foreign is MongoDB's own lock manager, in a config server of 3.2 to 6.0. It uses the same
// collections as the processes.
//   - Its id never changes, and its pings have no seq.
//   - It takes free locks and keeps the other fields and the queue in their documents.
//   - It frees locks by the state alone.
//   - It condemns no process. It takes a lock over if the holder's ping was unchanged for
//     ForeignTakeover by the server's clock.
type Foreign struct {
	Process string
	// Spells are the periods in which it runs, in order. Between them it does not act, and its
	// locks stay held.
	Spells []Spell
	// Tasks are its uses of locks.
	Tasks []Task
}

// A Spell is a period in which a foreign manager runs.
type Spell struct {
	From, To time.Duration
	// If Orderly is set, the manager deletes its ping at the end. It keeps its locks.
	Orderly bool
}

// A Task of a foreign manager polls a lock from an instant on, works for a while with the lock, and
// frees it.
type Task struct {
	At   time.Duration
	Name string
	For  time.Duration
}

// foreign is a running Foreign. Only the loop of the world uses it.
type foreign struct {
	Foreign
	w     *world
	up    bool
	seen  map[string]strangerPing  // pings of holders, by lock name
	holds map[string]bson.ObjectID // by lock name
	queue []func()                 // actions for the time when it runs again
}

// strangerPing is a holder's ping that a foreign manager has read.
type strangerPing struct {
	ts    bson.ObjectID
	ping  bson.DateTime
	since time.Time // by the server's clock
}

func without(doc bson.D, name string) bson.D {
	return slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool { return e.Key == name })
}

// foreignPoll is a foreign manager's number of attempts per Poll.
const foreignPoll = 4

func (w *world) startForeign(of Foreign) {
	f := &foreign{
		Foreign: of, w: w, seen: map[string]strangerPing{}, holds: map[string]bson.ObjectID{},
	}
	w.foreigners = append(w.foreigners, f)
	for _, s := range of.Spells {
		w.After(s.From, f.start)
		w.After(s.To, func() { f.stop(s.Orderly) })
	}
	for _, t := range of.Tasks {
		w.After(t.At, func() { f.whenUp(func() { f.attempt(t) }) })
	}
}

func (f *foreign) start() {
	f.up = true
	f.w.log.add("foreign %s starts", f.Process)
	f.ping()
	waiting := f.queue
	f.queue = nil
	for _, do := range waiting {
		do()
	}
}

func (f *foreign) stop(orderly bool) {
	f.up = false
	f.w.log.add("foreign %s stops", f.Process)
	if orderly {
		f.w.Server.Remove(catalog.PingsCollection, f.Process)
		f.w.store.note(catalog.PingsCollection, f.Process, nil)
	}
}

func (f *foreign) whenUp(do func()) {
	if !f.up {
		f.queue = append(f.queue, do)
		return
	}
	do()
}

// ping writes only the date and keeps all other fields.
func (f *foreign) ping() {
	if !f.up {
		return
	}
	doc := f.w.store.document(catalog.PingsCollection, f.Process)
	doc = append(without(without(doc, "_id"), "ping"), bson.E{Key: "ping", Value: f.w.ServerNow()})
	f.write(catalog.PingsCollection, f.Process, doc)
	f.w.judge.foreignLives(f.Process)
	f.w.After(f.w.s.Timing.Ping, f.ping)
}

// attempt tries once to get a lock, and again after a pause.
func (f *foreign) attempt(t Task) {
	if f.take(t.Name) {
		f.w.After(t.For, func() { f.whenUp(func() { f.free(t.Name) }) })
		return
	}
	f.w.After(f.w.s.Timing.Poll/foreignPoll, func() { f.whenUp(func() { f.attempt(t) }) })
}

// take acquires a lock that is free, or takes it over if the rule allows that.
func (f *foreign) take(name string) bool {
	if _, holds := f.holds[name]; holds || f.w.Server.Busy(name) {
		return false // another task holds the lock, or a transaction blocks the write
	}
	doc := f.w.store.document(catalog.LocksCollection, name)
	raw := f.w.Server.Document(catalog.LocksCollection, name)
	state, isNumber := raw.Lookup("state").AsInt64OK()
	if raw != nil && (!isNumber || state != 0 && !f.mayOvertake(name, raw)) {
		return false
	}
	ts := f.w.objectID()
	for _, e := range []bson.E{
		{Key: "state", Value: int32(2)}, {Key: "process", Value: f.Process}, {Key: "ts", Value: ts},
		{Key: "who", Value: f.Process + ":conn1"}, {Key: "why", Value: "foreign"},
		{Key: "when", Value: f.w.ServerNow()},
	} {
		doc = append(without(doc, e.Key), e)
	}
	f.w.log.add("foreign %s takes %q", f.Process, name)
	f.write(catalog.LocksCollection, name, without(doc, "_id"))
	f.holds[name] = ts
	f.w.judge.foreignLives(f.Process)
	f.w.judge.foreignTook(f.Process, name)
	return true
}

// mayOvertake is the foreign takeover rule: the holder's ping was unchanged for the whole takeover
// time by the server's clock, which is also the manager's clock.
func (f *foreign) mayOvertake(name string, lock bson.Raw) bool {
	holder, _ := lock.Lookup("process").StringValueOK()
	ts, _ := lock.Lookup("ts").ObjectIDOK()
	at, _ := f.w.Server.Document(catalog.PingsCollection, holder).Lookup("ping").DateTimeOK()
	now, was := f.w.ServerNow(), f.seen[name]
	if was.ts != ts || was.ping != bson.DateTime(at) || was.since.IsZero() {
		f.seen[name] = strangerPing{ts, bson.DateTime(at), now}
		return false
	}
	return now.Sub(was.since) > f.w.s.Timing.Foreign
}

// free sets the state to 0 if the session still holds the lock, and keeps all other fields.
func (f *foreign) free(name string) {
	if f.w.Server.Busy(name) {
		f.w.After(inDoubt, func() { f.whenUp(func() { f.free(name) }) })
		return
	}
	ts := f.holds[name]
	delete(f.holds, name)
	raw := f.w.Server.Document(catalog.LocksCollection, name)
	if now, ok := raw.Lookup("ts").ObjectIDOK(); !ok || now != ts {
		return
	}
	f.w.log.add("foreign %s frees %q", f.Process, name)
	doc := f.w.store.document(catalog.LocksCollection, name)
	doc = append(without(without(doc, "state"), "_id"), bson.E{Key: "state", Value: int32(0)})
	f.write(catalog.LocksCollection, name, doc)
}

// write replaces a document. It keeps the _id.
func (f *foreign) write(collection, id string, rest bson.D) {
	doc := append(bson.D{{Key: "_id", Value: id}}, rest...)
	if err := f.w.store.put(collection, id, doc); err != nil {
		f.w.judge.violated("setup", "%v", err)
	}
}
