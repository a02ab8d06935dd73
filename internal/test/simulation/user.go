package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// A User is one goroutine of a process that uses locks. Its methods return early if the run ends.
type User struct {
	Chance *rand.Rand
	p      *process
	m      *distlock.Manager
	label  string
	nested int // number of open transactions
}

// An attempt is one open call of Lock or TryLock. The oracle's mu guards its fields.
type attempt struct {
	name     string // for LockAll, the name of the lock being acquired
	p        *process
	waits    bool
	several  bool // it is a call of LockAll
	stood    bool // it was queued
	since    time.Duration
	sessions []bson.ObjectID
	holds    []bson.ObjectID // sessions that the caller holds, from its context
	struck   int             // number of earlier faults of the process

	limit  time.Duration // deadline by the process's clock; 0 without WaitAtMost
	ended  time.Duration // time at which its context was done; 0 before
	cancel func()        // ends the context
}

// Held is a lock that a user holds or has held.
type Held struct {
	p     *process
	name  string
	how   How
	guard *distlock.TryGuard
	at    time.Duration

	// The loop of the world owns the rest.
	over bool // Release has returned
	lost bool // the oracle has seen its loss
}

// session returns the guard's lock session that the store knows.
func (h *Held) session() bson.ObjectID { return h.p.snapshot.stored(h.guard.Session()) }

// Sleep waits by the clock of the process and reports whether the run continues.
func (u *User) Sleep(d time.Duration) bool {
	return clock.Sleep(u.p.Clock, d, u.p.ctx.Done()) && !u.shut()
}

// shut reports whether a fault has closed the process.
func (u *User) shut() bool {
	u.p.mu.Lock()
	defer u.p.mu.Unlock()
	return u.p.shut
}

// Until waits for the time from now to the instant, by the clock of the process. It reports whether
// the run continues.
func (u *User) Until(at time.Duration) bool { return u.Sleep(at - u.p.w.Now()) }

// How is the way in which a user acquires a lock.
type How struct {
	// Wait is the longest wait in the queue. With 0 the user tries once.
	Wait time.Duration
	// Context is set if the context and not WaitAtMost ends the wait.
	Context bool
	// Shared acquires for reading.
	Shared bool
	// Lease is the lease of the lock. With 0 there is no lease.
	Lease time.Duration
	// Permits is the limit of a semaphore. The user acquires one permit.
	Permits int
	// Under is a lock that the caller holds during the call and passes on in the context.
	Under *Held
	// If Silent is set, the caller does not pass on the context of Under.
	Silent bool
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

// Try acquires a lock if it is free or may be taken over. It returns nil on failure.
func (u *User) Try(name string) *Held { return u.Acquire(name, How{}) }

// Lock acquires a lock. It waits in the queue no longer than wait, and returns nil on failure.
func (u *User) Lock(name string, wait time.Duration) *Held {
	return u.Acquire(name, How{Wait: wait})
}

// Poll tries repeatedly to acquire a lock, for at most wait. It returns nil on failure.
func (u *User) Poll(name string, wait time.Duration) *Held { return u.Ask(name, How{}, wait) }

// Ask acquires a lock by repeated calls with growing pauses. It returns nil on failure.
func (u *User) Ask(name string, how How, wait time.Duration) *Held {
	t := u.p.w.s.Timing
	pause, end := t.Poll, u.p.w.Now()+wait
	defer u.p.w.judge.asks(u.p, name)()
	for {
		if h := u.Acquire(name, how); h != nil {
			return h
		}
		left := end - u.p.w.Now()
		if left <= 0 || !u.Sleep(min(pause, left)) {
			return nil
		}
		pause = min(pause+pause/2, t.PollMax)
	}
}

func (u *User) options(how How) []distlock.Option {
	opts := []distlock.Option{distlock.Label(u.label)}
	if how.Shared {
		opts = append(opts, distlock.Shared())
	}
	if how.Permits > 0 {
		opts = append(opts, distlock.Permits(how.Permits))
	}
	if how.Lease > 0 {
		opts = append(opts, distlock.Lease(how.Lease))
	}
	if how.Wait > 0 && !how.Context {
		opts = append(opts, distlock.WaitAtMost(how.Wait))
	}
	return opts
}

// context returns the context of one call. It ends with the run, with the guard of Under, at the
// deadline, or by a fault.
func (u *User) context(how How, a *attempt) (context.Context, func()) {
	above := u.p.ctx
	if how.Under != nil && !how.Silent {
		above = how.Under.guard.Context()
	}
	ctx, cancel := context.WithCancel(above)
	a.cancel = cancel
	told := context.AfterFunc(ctx, func() { u.p.w.judge.contextEnded(a) })
	if how.Wait > 0 && how.Context {
		go func() { // ends with ctx
			clock.Sleep(u.p.Clock, how.Wait, ctx.Done())
			cancel()
		}()
	}
	return ctx, func() { told(); cancel() }
}

// Acquire acquires a lock. It returns nil on failure.
func (u *User) Acquire(name string, how How) *Held {
	a := u.attempt(name, how)
	ctx, end := u.context(how, a)
	keep := false
	defer func() {
		if !keep {
			end()
		}
	}()
	u.p.w.judge.begin(u.p, u.label, a)
	lock := u.m.Lock(name)
	acquire := lock.Lock
	if how.Wait == 0 {
		acquire = lock.TryLock
	}
	g, err := acquire(ctx, u.options(how)...)
	if keep = g != nil; keep {
		u.p.ended(g.Context(), end)
	}
	return u.end(a, how, g, err)
}

// ended calls end when the guard's context ends. The function end cancels the context of the
// acquisition.
func (p *process) ended(ctx context.Context, end func()) { context.AfterFunc(ctx, end) }

func (u *User) attempt(name string, how How) *attempt {
	w := u.p.w
	a := &attempt{name: name, p: u.p, waits: how.Wait > 0, since: w.Now(), struck: u.p.struck}
	if how.Wait > 0 && !how.Context {
		a.limit = u.p.Clock.Now().Mono + how.Wait
	}
	if how.Under != nil && !how.Silent {
		a.holds = append(a.holds, how.Under.session())
	}
	return a
}

func (u *User) end(a *attempt, how How, g *distlock.TryGuard, err error) *Held {
	w := u.p.w
	var h *Held
	if g != nil {
		h = &Held{p: u.p, name: g.Name(), how: how, guard: g, at: w.Now()}
	}
	w.judge.end(u.p, u.label, a, h, err)
	if h == nil && !errors.Is(err, distlock.ErrHeld) {
		w.log.failed(u, a.name, err)
	}
	return h
}

// LockAll acquires several locks. It returns nil if it did not get all locks.
func (u *User) LockAll(names []string, wait time.Duration) []*Held {
	how := How{Wait: wait}
	a := u.attempt(slices.Min(names), how)
	a.several = true
	ctx, end := u.context(how, a)
	u.p.w.judge.begin(u.p, u.label, a)
	for _, name := range names {
		u.p.w.judge.register(name)
	}
	all, err := u.m.LockAll(ctx, names, u.options(how)...)
	if err != nil {
		end()
		u.end(a, how, nil, err)
		return nil
	}
	u.p.ended(all.Context(), end)
	var held []*Held
	for _, g := range all.All() {
		held = append(held, u.end(a, how, g, nil))
	}
	return held
}

// ReleaseAll frees several locks in reverse order.
func (u *User) ReleaseAll(held []*Held) {
	for _, h := range slices.Backward(held) {
		u.Release(h)
	}
}

// Do acquires a lock, works under it for d and releases it, in one call of the Manager. The work
// stops at the end of its context, because Close waits for it. Work under a plain guard ignores its
// context.
func (u *User) Do(name string, how How, d time.Duration) {
	a := u.attempt(name, how)
	ctx, end := u.context(how, a)
	defer end()
	u.p.w.judge.begin(u.p, u.label, a)
	var h *Held
	called := time.Duration(0)
	err := u.m.Do(ctx, name, func(ctx context.Context, g *distlock.TryGuard) error {
		h = u.end(a, how, g, nil)
		for range writes {
			if !clock.Sleep(u.p.Clock, d/writes, ctx.Done()) || g.Err() != nil {
				break
			}
			u.Write(h)
		}
		called = u.p.w.Now()
		return nil
	}, u.options(how)...)
	if h == nil {
		u.end(a, how, nil, err)
		return
	}
	u.p.w.judge.released(h, err, called)
}

// Twice acquires a held lock again and releases the second guard. The lock stays held.
func (u *User) Twice(h *Held) {
	again, err := h.guard.Reenter()
	if err != nil {
		return // the guard is over
	}
	u.Sleep(time.Second)
	_ = again.Release() // the first guard has the result
	if err := h.guard.Err(); errors.Is(err, distlock.ErrReleased) {
		u.p.w.judge.say(news{p: u.p, wrong: "a guard of " + h.name + " is over after another's release"})
	}
}

// writes is the number of writes of one Work to the protected resource.
const writes = 4

// Work holds a lock for d and writes to the protected resource several times while the guard is
// trusted. It reports whether the guard was trusted to the end.
func (u *User) Work(h *Held, d time.Duration) bool {
	for range writes {
		if !u.Sleep(d/writes) || h.guard.Err() != nil {
			return false
		}
		u.Write(h)
	}
	return h.guard.Err() == nil
}

// Write writes to the protected resource in one command, with the fence and without. The resource
// refuses a fence smaller than an earlier one.
func (u *User) Write(h *Held) {
	w := u.p.w
	c := &call{p: u.p, op: opWrite, subject: h.name, writes: true, ts: h.guard.Session()}
	c.do = func() error {
		if !w.judge.wrote(h) {
			return catalog.ErrNoMatch
		}
		return nil
	}
	_ = c.submit(u.p.ctx) // the oracle has seen the outcome
}

// Check asks the server whether the lock is still held.
func (u *User) Check(h *Held) error { return h.guard.Verify(context.Background()) }

// Release frees the lock.
func (u *User) Release(h *Held) {
	if h == nil {
		return
	}
	called := u.p.w.Now()
	err := h.guard.Release()
	u.p.w.judge.released(h, err, called)
}
