// Package virtual runs simulated processes on one store in memory, in virtual time, with clocks
// that may be wrong. A run is called a play.
//
// A process acts only when one of its timers fires or one of its commands is answered. Both are
// events. Events happen one at a time: the next event happens when all goroutines are blocked
// again. Requests that goroutines make between two events are sorted, so a play does not depend on
// Go's scheduler.
package virtual

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
)

// A World is one play: the store, the processes and the pending events.
type World struct {
	// Server keeps the documents.
	Server *memcatalog.Catalog
	// Choose returns the index of the next of several simultaneous events. The events are in the order
	// of their requests. If Choose is nil, the first of them is next.
	Choose func(due []*Event) int
	// Primary is the number of the present primary. Each election raises it by 1.
	Primary int

	base      clock.Clock // the virtual time
	start     time.Duration
	epoch     time.Time
	processes []*Process
	wake      chan struct{} // signals a new request
	pause     clock.Timer   // timer of the next event; nil before the first event

	mu     sync.Mutex // guards the fields below
	agenda agenda
	timers []*Event      // timers set since the last event, not in the agenda yet
	posts  []post        // requests since the last event
	ahead  time.Duration // lead of the server's clock over true time
}

// A post is a function that a goroutine has passed to Post. The posts of one process are called in
// the order of their keys.
type post struct {
	owner int
	key   string
	run   func()
}

// Play calls the given function in a new testing/synctest bubble, with a new world. True time
// begins at epoch. A program that is not a test passes a zero testing.T.
func Play(t *testing.T, epoch time.Time, play func(*World)) {
	synctest.Test(t, func(*testing.T) {
		w := &World{base: clock.System(), epoch: epoch, wake: make(chan struct{}, 1)}
		w.start = w.base.Now().Mono
		w.Server = memcatalog.New(memcatalog.Options{Now: w.ServerNow, Primary: w.PrimaryName()})
		play(w)
	})
}

// Now returns the time since the start of the play.
func (w *World) Now() time.Duration { return w.base.Now().Mono - w.start }

// True returns the true time of day.
func (w *World) True() time.Time { return w.epoch.Add(w.Now()) }

// ServerNow returns the time of the server's clock.
func (w *World) ServerNow() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.True().Add(w.ahead)
}

// StepServer steps the server's clock.
func (w *World) StepServer(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

// Elect makes another server primary. The clock of the new primary is ahead of the clock of the
// previous primary by the given duration.
func (w *World) Elect(by time.Duration) {
	w.Primary++
	w.Server.SetPrimary(w.PrimaryName())
	w.StepServer(by)
}

// PrimaryName returns the name of the primary.
func (w *World) PrimaryName() string { return fmt.Sprintf("primary %d", w.Primary) }

// At schedules an event for an instant. The owner is the index of a process, or -1 for the world.
func (w *World) At(at time.Duration, owner int, run func()) {
	w.mu.Lock()
	w.agenda.add(&Event{At: at, Owner: owner, run: run})
	w.mu.Unlock()
	w.Poke()
}

// After schedules an event of the world. The event happens after the duration d.
func (w *World) After(d time.Duration, run func()) { w.At(w.Now()+d, -1, run) }

// Post schedules a call before the next event. Such calls are made in the order of their owners,
// then of their keys. Post is safe for concurrent use.
func (w *World) Post(owner int, key string, run func()) {
	w.mu.Lock()
	w.posts = append(w.posts, post{owner, key, run})
	w.mu.Unlock()
	w.Poke()
}

// Poke wakes Step, so that Step processes new requests before the next event.
func (w *World) Poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Step waits until all goroutines are blocked, calls the posted functions, and then the given
// function. If an event is due, Step runs it and returns true. Otherwise Step waits until the next
// event, at most until limit or until a new request, and returns false.
func (w *World) Step(limit time.Duration, look func()) bool {
	synctest.Wait()
	select {
	case <-w.wake:
	default:
	}
	w.mu.Lock()
	posts := w.posts
	w.posts = nil
	w.mu.Unlock()
	slices.SortStableFunc(posts, func(a, b post) int {
		return cmp.Or(a.owner-b.owner, cmp.Compare(a.key, b.key))
	})
	for _, p := range posts {
		p.run()
	}
	look()
	w.mu.Lock()
	w.enterTimers()
	due, now := w.agenda.next(), w.Now()
	if len(due) > 0 && due[0].At <= now {
		i := 0
		if len(due) > 1 && w.Choose != nil {
			i = w.Choose(due)
		}
		e := due[i]
		w.agenda = slices.Delete(w.agenda, i, i+1)
		w.mu.Unlock()
		e.run()
		return true
	}
	if len(due) > 0 {
		limit = min(limit, due[0].At)
	}
	w.mu.Unlock()
	if w.pause == nil {
		w.pause = w.base.NewTimer(limit - now)
	} else {
		w.pause.Reset(limit - now)
	}
	defer w.pause.Stop()
	select {
	case <-w.pause.C():
	case <-w.wake:
	}
	return false
}

// enterTimers adds the new timers to the agenda, in an order that is independent of Go's scheduler.
// The caller holds mu.
func (w *World) enterTimers() {
	slices.SortStableFunc(w.timers, func(a, b *Event) int {
		return cmp.Or(a.Owner-b.Owner, cmp.Compare(a.timer.site(), b.timer.site()), cmp.Compare(a.At, b.At))
	})
	for _, e := range w.timers {
		w.agenda.add(e)
	}
	w.timers = w.timers[:0]
}

// Drain repeats the given step until all goroutines of the processes have returned. All processes
// must be buried. Drain panics after 1000 hours of virtual time.
func (w *World) Drain(step func(limit time.Duration)) {
	for limit := w.Now() + 1000*time.Hour; w.running() > 0; step(w.Now() + time.Hour) {
		if w.Now() > limit {
			panic("virtual: a process does not end")
		}
	}
}

func (w *World) running() (n int) {
	for _, p := range w.processes {
		n += p.Running()
	}
	return n
}
