// Package locktest provides a server in memory, and processes that use locks on this server, in
// virtual time. It serves the tests of package distlock and of the packages built on it.
package locktest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// The default timing of a process. It is the timing of mongos.
const (
	TakeoverTime   = 15 * time.Minute
	Margin         = TakeoverTime / 4
	HoldTime       = TakeoverTime - Margin
	PingTime       = 30 * time.Second
	CommandTimeout = 5 * time.Second
)

// A World is a server in memory, which runs in the virtual time of a test.
type World struct {
	T   *testing.T
	Mem *memcatalog.Catalog
}

// InBubble runs a test in virtual time, on an empty server, in parallel with other tests.
func InBubble(t *testing.T, test func(t *testing.T, w *World)) {
	t.Helper()
	t.Parallel()
	InBubbleAlone(t, test)
}

// InBubbleAlone is like InBubble, but not in parallel with other tests. It is for a test that
// counts resources of the program.
func InBubbleAlone(t *testing.T, test func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(t)) })
}

// New returns an empty server for a test that is already in a testing/synctest bubble.
func New(t *testing.T) *World { return &World{t, memcatalog.New(memcatalog.Options{})} }

// A Proc is a process with its Manager. Store is its connection to the server, into which tests
// inject faults.
type Proc struct {
	*distlock.Manager
	Store *fault.Catalog
	Kept  []*distlock.TryGuard // keeps the guards from the garbage collector, which would release them

	w *World
}

// Start starts a process. If change is not nil, Start calls it to change the configuration. When
// the test ends, the faults of the process are removed, and the process is closed.
func (w *World) Start(change func(*distlock.Config)) *Proc {
	w.T.Helper()
	return w.StartBy(clock.System(), change)
}

// StartBy is like Start, but the process uses the clock c.
func (w *World) StartBy(c clock.Clock, change func(*distlock.Config)) *Proc {
	w.T.Helper()
	p := &Proc{Store: fault.Wrap(w.Mem), w: w}
	cfg := distlock.Config{Catalog: p.Store, Host: "host"}
	if change != nil {
		change(&cfg)
	}
	m := assert.Value(distlock.New(clock.With(w.T.Context(), c), cfg))(w.T)
	p.Manager = m
	w.T.Cleanup(func() {
		p.Heal()
		_ = p.Close(context.Background()) // it may be closed, or have lost its locks
		// A hook may sleep longer than its command. The bubble must not end before the hook.
		for n := 0; p.Store.Running() > 0 && n < 600; n++ {
			clock.Sleep(clock.System(), 100*time.Millisecond, nil)
		}
		runtime.KeepAlive(p.Kept)
	})
	synctest.Wait()
	return p
}

// Kill disconnects a process from the server permanently. To other processes, the process looks
// dead.
func (p *Proc) Kill() {
	p.Store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
		return fault.Refused(call.Op)
	})
}

// Heal removes the faults of the process.
func (p *Proc) Heal() { p.Store.Set(nil) }

// Try calls TryLock and keeps the guard until the end of the test.
func (p *Proc) Try(name string, opts ...distlock.Option) (*distlock.TryGuard, error) {
	g, err := p.Lock(name).TryLock(context.Background(), opts...)
	if g != nil {
		p.Kept = append(p.Kept, g)
	}
	return g, err
}

// MustTry is like Try, but ends the test on an error.
func (p *Proc) MustTry(name string, opts ...distlock.Option) *distlock.TryGuard {
	p.w.T.Helper()
	g, err := p.Try(name, opts...)
	if err != nil {
		p.w.T.Fatalf("TryLock(%q): %v", name, err)
	}
	return g
}

// Document returns the stored document of a lock, or nil.
func (w *World) Document(name string) bson.Raw {
	return w.Mem.Document(catalog.LocksCollection, name)
}

// Lock returns the parsed document of a lock. It ends the test if the document is malformed.
func (w *World) Lock(name string) catalog.Lock {
	w.T.Helper()
	l, bad := catalog.ParseLock(w.Document(name))
	if bad != nil {
		w.T.Fatal(bad)
	}
	return l
}

// A Clock has a wall clock that tests can step. Its monotonic clock is correct.
type Clock struct {
	clock.Clock
	ahead atomic.Int64 // of the wall clock, in nanoseconds
}

// WrongClock returns a clock whose wall time is ahead by the given duration.
func WrongClock(by time.Duration) *Clock {
	c := &Clock{Clock: clock.System()}
	c.Step(by)
	return c
}

// Step sets the wall clock ahead by the given duration.
func (c *Clock) Step(by time.Duration) { c.ahead.Add(int64(by)) }

// Now implements [clock.Clock].
func (c *Clock) Now() clock.Reading {
	r := c.Clock.Now()
	r.Wall = r.Wall.Add(time.Duration(c.ahead.Load()))
	return r
}

// WantHeld returns the *distlock.HeldError in err. It ends the test if err contains no such error.
func WantHeld(t testing.TB, err error) *distlock.HeldError {
	t.Helper()
	var h *distlock.HeldError
	if !errors.As(err, &h) {
		t.Fatalf("error is %v, want a *HeldError", err)
	}
	return h
}
