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
	stood    bool // it has stood in a line
	since    time.Duration
	sessions []bson.ObjectID
	struck   int // faults that had struck the process when it began
}

// Held is a lock that a user holds, or has held.
type Held struct {
	p     *process
	name  string
	how   How
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

// How says how a user acquires a lock.
type How struct {
	// Wait is how long it waits in line; 0 is one try.
	Wait time.Duration
	// Context lets the end of its context end the wait, and not WaitAtMost.
	Context bool
	// Shared acquires for reading.
	Shared bool
	// Permits acquires one of so many permits.
	Permits int
	// Barge lets a try overtake those who wait.
	Barge bool
	// Holding is what the caller says that it holds while it waits; nil for nothing.
	Holding *Held
}

func (h How) mode() catalog.Mode {
	switch {
	case h.Shared:
		return catalog.Shared
	case h.Permits > 0:
		return catalog.Permit
	}
	return catalog.Exclusive
}

// Try acquires a lock if it is free or may be taken; nil when not.
func (u *User) Try(name string) *Held { return u.Acquire(name, How{}) }

// Lock acquires a lock and waits in line at most that long; nil when it did not get it.
func (u *User) Lock(name string, wait time.Duration) *Held {
	return u.Acquire(name, How{Wait: wait})
}

// Poll tries to acquire a lock again and again, for that long; nil when it did not get it.
func (u *User) Poll(name string, wait time.Duration) *Held {
	t := u.p.w.s.Timing
	pause, end := t.Poll, u.p.w.now()+wait
	for {
		if h := u.Try(name); h != nil {
			return h
		}
		left := end - u.p.w.now()
		if left <= 0 || !u.Sleep(min(pause, left)) {
			return nil
		}
		pause = min(pause+pause/2, t.PollMax)
	}
}

// Acquire acquires a lock; nil when it did not get it.
func (u *User) Acquire(name string, how How) *Held {
	opts := []distlock.Option{distlock.Label(u.label)}
	if how.Shared {
		opts = append(opts, distlock.Shared())
	}
	if how.Permits > 0 {
		opts = append(opts, distlock.Permits(how.Permits))
	}
	if how.Barge {
		opts = append(opts, distlock.Barge())
	}
	if how.Holding != nil {
		opts = append(opts, distlock.Holding(how.Holding.guard))
	}
	done := u.begin(name, how)
	switch {
	case how.Wait == 0:
		return done(u.m.Lock(name).TryLock(u.p.ctx, opts...))
	case !how.Context:
		return done(u.m.Lock(name).Lock(u.p.ctx, append(opts, distlock.WaitAtMost(how.Wait))...))
	}
	ctx, cancel := context.WithCancel(u.p.ctx)
	defer cancel()
	go func() { // ends with ctx
		clock.Sleep(u.p.clock, how.Wait, ctx.Done())
		cancel()
	}()
	return done(u.m.Lock(name).Lock(ctx, opts...))
}

// begin tells the oracles of an attempt; what it returns tells them of its end.
func (u *User) begin(name string, how How) func(*distlock.TryGuard, error) *Held {
	w := u.p.w
	a := &attempt{name: name, p: u.p, waits: how.Wait > 0, since: w.now(), struck: u.p.struck}
	w.judge.begin(u.p, u.label, a)
	return func(g *distlock.TryGuard, err error) *Held {
		var h *Held
		if g != nil {
			h = &Held{p: u.p, name: name, how: how, guard: g, at: w.now()}
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

// ForeignRelease frees a lock as a mongos would: it knows nothing of a line.
func (o *Outside) ForeignRelease(name string) {
	o.w.log.add("foreign release of %q", name)
	err := o.w.store.edit(name, func(doc bson.D) bson.D {
		return append(without(doc, "state"), bson.E{Key: "state", Value: int32(0)})
	})
	if err != nil {
		o.w.judge.violated("setup", "%v", err)
	}
	o.w.store.note(catalog.LocksCollection, name, o.w.mem.Document(catalog.LocksCollection, name))
}
