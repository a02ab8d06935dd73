package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// foreignProcess is the process id of the foreign manager.
const foreignProcess = "ConfigServer"

// A foreign is MongoDB's own lock manager, as in a config server of 3.2 to 6.0. It uses the same
// collections as the processes. Only the event loop uses it.
//   - The manager runs and stops at random. Its locks stay held while it is stopped.
//   - Its process id never changes. Its pings have no seq.
//   - It acquires free locks. It keeps fields that it does not know, such as the queue.
//   - It frees a lock by changing only the state.
//   - It takes over a lock if the ping of the holder has not changed for Timing.Foreign,
//     by the server's clock. It condemns no process.
type foreign struct {
	w     *world
	up    bool
	taken byte                     // number of locks that it has acquired
	seen  map[string]holderPing    // pings of holders, by lock name
	holds map[string]bson.ObjectID // sessions of held locks, by lock name
	queue []func()                 // actions that wait until it runs again
}

// A holderPing is the ping of a holder that the foreign manager has read.
type holderPing struct {
	ts    bson.ObjectID
	ping  int64
	since time.Time // by the server's clock
}

func (w *world) startForeign() {
	r := rand.New(rand.NewPCG(w.s.Seed, 3))
	randomUpTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	f := &foreign{w: w, seen: map[string]holderPing{}, holds: map[string]bson.ObjectID{}}
	w.foreign = f
	takeover := w.s.Timing.Takeover
	for at := randomUpTo(takeover); at < w.s.Length; at += time.Second + randomUpTo(2*takeover) {
		orderly := r.IntN(2) == 0
		w.After(at, f.start)
		at += randomUpTo(8 * takeover)
		w.After(at, func() { f.stop(orderly) })
	}
	for at := time.Duration(0); at < w.s.Length; at += randomUpTo(4 * takeover) {
		name, d := w.s.Foreign[r.IntN(len(w.s.Foreign))], randomUpTo(takeover)
		w.After(at, func() { f.whenUp(func() { f.attempt(name, d) }) })
	}
}

func (f *foreign) start() {
	f.up = true
	f.w.log.add("%s starts", foreignProcess)
	f.ping()
	waiting := f.queue
	f.queue = nil
	for _, do := range waiting {
		do()
	}
}

// stop stops the manager, which keeps its locks. An orderly stop also deletes its ping document.
func (f *foreign) stop(orderly bool) {
	f.up = false
	f.w.log.add("%s stops", foreignProcess)
	if orderly {
		f.w.store.remove(catalog.PingsCollection, foreignProcess)
	}
}

func (f *foreign) whenUp(do func()) {
	if !f.up {
		f.queue = append(f.queue, do)
		return
	}
	do()
}

func (f *foreign) ping() {
	if !f.up {
		return
	}
	f.set(catalog.PingsCollection, foreignProcess, bson.E{Key: "ping", Value: f.w.ServerNow()})
	f.w.oracle.foreignAlive = f.w.Now()
	f.w.After(f.w.s.Timing.Ping, f.ping)
}

// attempt polls a lock until it acquires the lock, and frees the lock after d.
func (f *foreign) attempt(name string, d time.Duration) {
	if f.take(name) {
		f.w.After(d, func() { f.whenUp(func() { f.free(name) }) })
		return
	}
	f.w.After(f.w.s.Timing.Poll/4, func() { f.whenUp(func() { f.attempt(name, d) }) })
}

// take acquires a lock that is free or whose holder is dead. It reports whether it succeeded.
func (f *foreign) take(name string) bool {
	if _, holds := f.holds[name]; holds || f.w.Server.Busy(name) {
		return false // another task holds the lock, or a transaction blocks the write
	}
	raw := f.w.Server.Document(catalog.LocksCollection, name)
	state, isNumber := raw.Lookup("state").AsInt64OK()
	if raw != nil && (!isNumber || state != 0 && !f.mayTakeOver(name, raw)) {
		return false
	}
	f.taken++
	ts := bson.ObjectID{0: 0xf0, 11: f.taken}
	f.w.log.add("%s takes %q", foreignProcess, name)
	f.set(catalog.LocksCollection, name, bson.E{Key: "state", Value: int32(2)},
		bson.E{Key: "process", Value: foreignProcess}, bson.E{Key: "ts", Value: ts},
		bson.E{Key: "who", Value: foreignProcess + ":conn1"}, bson.E{Key: "why", Value: "foreign"},
		bson.E{Key: "when", Value: f.w.ServerNow()})
	f.holds[name] = ts
	f.w.oracle.foreignAlive = f.w.Now()
	f.w.oracle.checkNotTrusted(name, foreignProcess)
	return true
}

// mayTakeOver reports whether the session and the ping of the holder have not changed for longer
// than Timing.Foreign, by the server's clock.
func (f *foreign) mayTakeOver(name string, lock bson.Raw) bool {
	holder, _ := lock.Lookup("process").StringValueOK()
	ts, _ := lock.Lookup("ts").ObjectIDOK()
	at, _ := f.w.Server.Document(catalog.PingsCollection, holder).Lookup("ping").DateTimeOK()
	now, was := f.w.ServerNow(), f.seen[name]
	if was.ts != ts || was.ping != at || was.since.IsZero() {
		f.seen[name] = holderPing{ts, at, now}
		return false
	}
	return now.Sub(was.since) > f.w.s.Timing.Foreign
}

func (f *foreign) free(name string) {
	if f.w.Server.Busy(name) {
		f.w.After(retryPause, func() { f.whenUp(func() { f.free(name) }) })
		return
	}
	ts := f.holds[name]
	delete(f.holds, name)
	raw := f.w.Server.Document(catalog.LocksCollection, name)
	if now, ok := raw.Lookup("ts").ObjectIDOK(); ok && now == ts {
		f.w.log.add("%s frees %q", foreignProcess, name)
		f.set(catalog.LocksCollection, name, bson.E{Key: "state", Value: int32(0)})
	}
}

// set changes fields of a document and moves the changed fields to the end. It keeps the other
// fields.
func (f *foreign) set(collection, id string, fields ...bson.E) {
	doc := slices.DeleteFunc(f.w.store.document(collection, id), func(e bson.E) bool {
		return e.Key == "_id" || slices.ContainsFunc(fields, func(f bson.E) bool { return f.Key == e.Key })
	})
	f.w.store.put(collection, id, slices.Concat(bson.D{{Key: "_id", Value: id}}, doc, fields))
}
