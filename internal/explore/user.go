package explore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// A User is one goroutine of a process that uses locks. Its methods end early when the run ends.
type User struct {
	Chance *rand.Rand
	p      *process
	m      *distlock.Manager
	label  string
}

// An attempt is one call of Lock or TryLock that is under way. Its fields belong to world.mu.
type attempt struct {
	name     string
	p        *process
	waits    bool
	since    time.Duration
	sessions []bson.ObjectID
	struck   int // faults that had struck the process when it began
}

// Held is a lock that a user holds, or has held.
type Held struct {
	p     *process
	name  string
	guard *distlock.TryGuard
	at    time.Duration

	// The loop of the world owns what follows.
	over bool // Release has returned
	lost bool // it was seen lost
}

// Sleep waits by the clock of the process and reports whether the run goes on.
func (u *User) Sleep(d time.Duration) bool {
	return clock.Sleep(u.p.clock, d, u.p.ctx.Done())
}

// Until waits until an instant of true time, as far as the process runs.
func (u *User) Until(at time.Duration) bool { return u.Sleep(at - u.p.w.now()) }

// Try acquires a lock if it is free or may be taken; nil when not.
func (u *User) Try(name string) *Held {
	done := u.begin(name, false)
	g, err := u.m.Lock(name).TryLock(u.p.ctx, distlock.Label(u.label))
	return done(g, err)
}

// Lock acquires a lock and waits at most that long; nil when it did not get it.
func (u *User) Lock(name string, wait time.Duration) *Held {
	done := u.begin(name, true)
	g, err := u.m.Lock(name).Lock(u.p.ctx, distlock.Label(u.label), distlock.WaitAtMost(wait))
	return done(g, err)
}

// begin tells the oracles of an attempt; what it returns tells them of its end.
func (u *User) begin(name string, waits bool) func(*distlock.TryGuard, error) *Held {
	w := u.p.w
	a := &attempt{name: name, p: u.p, waits: waits, since: w.now(), struck: u.p.struck}
	w.judge.begin(u.p, u.label, a)
	return func(g *distlock.TryGuard, err error) *Held {
		var h *Held
		if g != nil {
			h = &Held{p: u.p, name: name, guard: g, at: w.now()}
		}
		w.judge.end(u.p, u.label, a, h, err)
		if h == nil && !errors.Is(err, distlock.ErrHeld) {
			w.log.failed(u, name, err)
		}
		return h
	}
}

// Work holds a lock for d and writes now and then to what it protects, as long as the guard is
// trusted. It reports whether the guard was trusted to the end.
func (u *User) Work(h *Held, d time.Duration) bool {
	const writes = 4
	for range writes {
		if !u.Sleep(d/writes) || h.guard.Err() != nil {
			return false
		}
		u.Write(h)
	}
	return h.guard.Err() == nil
}

// Write writes to what the lock protects: once with the fence, once without, both in one command.
// The resource refuses a fence that is smaller than one it has seen.
func (u *User) Write(h *Held) {
	w := u.p.w
	c := &call{p: u.p, op: opWrite, subject: h.name, writes: true, ts: h.guard.Session()}
	c.do = func() error {
		if !w.judge.wrote(h) {
			return catalog.ErrNoMatch
		}
		return nil
	}
	_ = c.submit(u.p.ctx) // the oracles have seen what became of it
}

// Check asks the server whether the lock is still held.
func (u *User) Check(h *Held) error { return h.guard.Check(context.Background()) }

// Release frees the lock.
func (u *User) Release(h *Held) {
	if h == nil {
		return
	}
	err := h.guard.Release()
	u.p.w.judge.released(h, err)
}

// Outside is what happens in the world beside the processes.
type Outside struct{ w *world }

// At lets something happen at an instant.
func (o *Outside) At(at time.Duration, do func()) { o.w.after(at, do) }

// Put plants a document.
func (o *Outside) Put(collection, id string, doc bson.D) {
	if err := o.w.store.put(collection, id, doc); err != nil {
		o.w.judge.violated("setup", "%v", err)
	}
}

// ForeignPing pings as a mongos would.
func (o *Outside) ForeignPing(process string) {
	o.w.log.add("foreign %s pings", process)
	o.Put(catalog.PingsCollection, process, bson.D{
		{Key: "_id", Value: process}, {Key: "ping", Value: o.w.serverNow()},
	})
	o.w.judge.foreignPing(process)
}

// ForeignLock writes a held lock as a mongos would.
func (o *Outside) ForeignLock(name, process string) {
	o.w.log.add("foreign %s holds %q", process, name)
	ts := bson.NewObjectID()
	o.Put(catalog.LocksCollection, name, bson.D{
		{Key: "_id", Value: name}, {Key: "state", Value: int32(2)}, {Key: "process", Value: process},
		{Key: "ts", Value: ts}, {Key: "who", Value: process + ":conn1:1"}, {Key: "why", Value: "foreign"},
		{Key: "when", Value: o.w.serverNow()},
	})
	o.w.judge.foreignLock(process, ts)
}
