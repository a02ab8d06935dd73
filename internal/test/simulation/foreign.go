package simulation

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// A Foreign is MongoDB's own lock manager as a config server of 3.2 to 6.0 runs it in the very same
// collections. Its id never changes; it pings without a seq; it takes free locks and leaves our
// fields and our queue in them; it frees them by the state alone; it condemns no process, and takes
// a lock over when its holder's ping was unchanged for ForeignTakeover by the server's clock.
type Foreign struct {
	Process string
	// Spells are the times in which it runs, in their order. In between it does not act, and its
	// locks stay held.
	Spells []Spell
	// Tasks are its uses of locks.
	Tasks []Task
}

// A Spell is a stretch of time in which a foreign manager runs.
type Spell struct {
	From, To time.Duration
	// Orderly lets it delete its ping at the end. It keeps its locks.
	Orderly bool
}

// A Task of a foreign manager polls a lock from an instant on until it has it, works for a while,
// and frees it.
type Task struct {
	At   time.Duration
	Name string
	For  time.Duration
}

// foreign is a running Foreign. All of it belongs to the loop of the world.
type foreign struct {
	Foreign
	w     *world
	up    bool
	seen  map[string]strangerPing  // pings of holders, by lock name
	holds map[string]bson.ObjectID // by lock name
	queue []func()                 // actions that wait until it runs again
}

// strangerPing is the ping of a holder as a foreign manager has seen it.
type strangerPing struct {
	ts    bson.ObjectID
	ping  bson.DateTime
	since time.Time // by the server's clock
}

func without(doc bson.D, name string) bson.D {
	return slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool { return e.Key == name })
}

// foreignPoll is the number of tries of a foreign manager in one pause (Poll) of ours.
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

// ping writes the date alone and keeps all other fields.
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

// attempt tries to get a lock once, and again after a pause.
func (f *foreign) attempt(t Task) {
	if f.take(t.Name) {
		f.w.After(t.For, func() { f.whenUp(func() { f.free(t.Name) }) })
		return
	}
	f.w.After(f.w.s.Timing.Poll/foreignPoll, func() { f.whenUp(func() { f.attempt(t) }) })
}

// take acquires a lock that is free, or that may be taken over from its holder.
func (f *foreign) take(name string) bool {
	if _, holds := f.holds[name]; holds || f.w.Server.Busy(name) {
		return false // for another task; or it waits for a transaction
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

// mayOvertake is its takeover rule: the holder's ping was unchanged for the whole time by the clock
// of the server, which is its own clock.
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

// write replaces a document except for its _id.
func (f *foreign) write(collection, id string, rest bson.D) {
	doc := append(bson.D{{Key: "_id", Value: id}}, rest...)
	if err := f.w.store.put(collection, id, doc); err != nil {
		f.w.judge.violated("setup", "%v", err)
	}
}
