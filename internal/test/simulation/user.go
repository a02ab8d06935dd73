package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// A User is a goroutine that uses locks. It belongs to a process. Its methods return early at the
// end of the run.
type User struct {
	Chance *rand.Rand
	p      *process
	m      *distlock.Manager
	label  string
}

// An attempt is an open call that acquires a lock. oracle.mu guards its fields.
type attempt struct {
	name     string // for LockAll, the name of the lock being acquired
	label    string // label of its user
	p        *process
	waits    bool // the call waits in the queue
	polls    bool // a series of calls, each with its own attempt
	several  bool // the call is LockAll
	queued   bool // the session has entered the queue
	since    time.Duration
	sessions []bson.ObjectID
	holds    []bson.ObjectID // sessions that the caller holds, from its context
	faults   int             // p.faults at the start of the call

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

	lost bool // the oracle has noticed the loss; only the event loop uses this field
}

func (h *Held) session() bson.ObjectID { return h.guard.Session() }

// Sleep waits for the duration d by the clock of the process. It reports whether the user may
// continue.
func (u *User) Sleep(d time.Duration) bool {
	return clock.Sleep(u.p.Clock, d, u.p.ctx.Done()) && !u.Shut()
}

// How describes an acquisition of a lock.
type How struct {
	// Wait is the longest wait in the queue. If it is 0, the user calls TryLock.
	Wait time.Duration
	// If Context is true, the end of a context limits the wait. Otherwise the option WaitAtMost limits
	// it.
	Context bool
	// Shared acquires the lock in shared mode.
	Shared bool
	// Lease is the lease of the lock. If it is 0, the lock has no lease.
	Lease time.Duration
	// Permits is the limit of a semaphore, of which the user acquires one permit. If it is 0, the lock
	// is not a semaphore.
	Permits int
	// Under is a lock that the caller holds already, or nil. The call uses the context of the guard of
	// that lock.
	Under *Held
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

// Try calls TryLock. It returns nil on failure.
func (u *User) Try(name string) *Held { return u.Acquire(name, How{}) }

// Lock waits in the queue of a lock, at most for the duration wait. It returns nil on failure.
func (u *User) Lock(name string, wait time.Duration) *Held {
	return u.Acquire(name, How{Wait: wait})
}

// Poll calls Try with growing pauses, until a call succeeds or the duration wait has passed. It
// returns nil on failure.
func (u *User) Poll(name string, wait time.Duration) *Held {
	t := u.p.w.s.Timing
	pause, end := t.Poll, u.p.w.Now()+wait
	polling := &attempt{name: name, p: u.p, polls: true}
	u.p.w.oracle.begin(polling)
	defer u.p.w.oracle.forget(polling)
	for {
		if h := u.Try(name); h != nil {
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

// context returns the context of a call. The context ends with the run, with the guard of
// How.Under, or by a fault. If How.Context is set, it also ends after How.Wait.
func (u *User) context(how How, a *attempt) (context.Context, func()) {
	above := u.p.ctx
	if how.Under != nil {
		above = how.Under.guard.Context()
	}
	ctx, cancel := context.WithCancel(above)
	a.cancel = cancel
	stop := context.AfterFunc(ctx, func() { u.p.w.oracle.contextEnded(a) })
	if how.Wait > 0 && how.Context {
		go func() { // ends with ctx
			clock.Sleep(u.p.Clock, how.Wait, ctx.Done())
			cancel()
		}()
	}
	return ctx, func() { stop(); cancel() }
}

func (o *oracle) contextEnded(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.ended == 0 {
		a.ended = max(o.w.Now(), 1)
	}
	o.w.Poke()
}

// Acquire acquires a lock. It returns nil on failure.
func (u *User) Acquire(name string, how How) *Held {
	a := u.attempt(name, how)
	ctx, end := u.context(how, a)
	u.p.w.oracle.begin(a)
	lock := u.m.Lock(name)
	acquire := lock.Lock
	if how.Wait == 0 {
		acquire = lock.TryLock
	}
	g, err := acquire(ctx, u.options(how)...)
	if err != nil {
		end()
	} else {
		context.AfterFunc(g.Context(), end)
	}
	return u.end(a, how, g, err)
}

func (u *User) attempt(name string, how How) *attempt {
	w := u.p.w
	a := &attempt{name: name, label: u.label, p: u.p, waits: how.Wait > 0, since: w.Now(),
		faults: u.p.faults}
	if how.Wait > 0 && !how.Context {
		a.limit = u.p.Clock.Now().Mono + how.Wait
	}
	if how.Under != nil {
		a.holds = append(a.holds, how.Under.session())
	}
	return a
}

func (u *User) end(a *attempt, how How, g *distlock.TryGuard, err error) *Held {
	var h *Held
	if g != nil {
		h = &Held{p: u.p, name: g.Name(), how: how, guard: g}
	}
	u.p.w.oracle.end(a, h, err)
	return h
}

// LockAll acquires several locks. It returns nil on failure.
func (u *User) LockAll(names []string, wait time.Duration) []*Held {
	how := How{Wait: wait}
	a := u.attempt(slices.Min(names), how)
	a.several = true
	ctx, end := u.context(how, a)
	u.p.w.oracle.begin(a, names...)
	all, err := u.m.LockAll(ctx, names, u.options(how)...)
	if err != nil {
		end()
		u.end(a, how, nil, err)
		return nil
	}
	context.AfterFunc(all.Context(), end)
	var held []*Held
	for _, g := range all.All() {
		held = append(held, u.end(a, how, g, nil))
	}
	return held
}

// Do calls Manager.Do with a function that works for the duration d. The function returns early if
// its context ends.
func (u *User) Do(name string, how How, d time.Duration) {
	a := u.attempt(name, how)
	ctx, end := u.context(how, a)
	defer end()
	u.p.w.oracle.begin(a)
	var h *Held
	called := time.Duration(0)
	err := u.m.Do(ctx, name, func(ctx context.Context, g *distlock.TryGuard) error {
		h = u.end(a, how, g, nil)
		clock.Sleep(u.p.Clock, d, ctx.Done())
		called = u.p.w.Now()
		return nil
	}, u.options(how)...)
	if h == nil {
		u.end(a, how, nil, err)
		return
	}
	u.p.w.oracle.released(h, err, called)
}

// Work waits for the duration d, and then returns true. It returns false early if the guard is lost
// or the user must stop.
func (u *User) Work(h *Held, d time.Duration) bool {
	const parts = 4
	for range parts {
		if !u.Sleep(max(d/parts, time.Millisecond)) || h.guard.Err() != nil {
			return false
		}
	}
	return true
}

// Release releases a lock. It does nothing if h is nil.
func (u *User) Release(h *Held) {
	if h == nil {
		return
	}
	called := u.p.w.Now()
	err := h.guard.Release()
	u.p.w.oracle.released(h, err, called)
}
