package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// An obstacle is a holder or a queue that a contender must wait for.
type obstacle struct {
	holder, queue bool // which processes are in the way
	limit         bool // while the obstacle lives, the error is a *PermitMismatchError
	build         func(w *world, holder, queue *proc, opts []distlock.Option) (undo func())
}

// heldWith returns a function that builds an obstacle: process h holds the lock, and process q
// queues the given number of waiters.
func heldWith(waiters int) func(w *world, h, q *proc, opts []distlock.Option) func() {
	return func(w *world, h, q *proc, opts []distlock.Option) func() {
		h.hold(opts)
		return w.queueWaiters(q, "a", waiters, opts)
	}
}

var obstacles = map[string]obstacle{
	"holder": {holder: true, build: heldWith(0)},
	"queue":  {holder: true, queue: true, build: heldWith(2)},
	"full queue": {holder: true, queue: true,
		build: func(w *world, h, q *proc, opts []distlock.Option) func() {
			h.hold(opts)
			return w.fill(q, "a", opts...)
		}},
	"other limit":            {holder: true, limit: true, build: otherLimit(0)},
	"queue of another limit": {holder: true, queue: true, limit: true, build: otherLimit(2)},
	"queue of a free lock": {queue: true,
		build: func(w *world, h, q *proc, opts []distlock.Option) func() {
			undo := heldWith(2)(w, h, q, opts)
			w.freeByHand("a")
			return undo
		}},
}

func otherLimit(waiters int) func(w *world, h, q *proc, opts []distlock.Option) func() {
	return func(w *world, h, q *proc, _ []distlock.Option) func() {
		return heldWith(waiters)(w, h, q, []distlock.Option{distlock.Permits(1)})
	}
}

// hold acquires the lock "a" so that another caller with the same options must wait.
func (p *proc) hold(opts []distlock.Option) {
	p.w.T.Helper()
	g := p.MustTry("a", opts...)
	switch p.w.Lock("a").Mode {
	case catalog.Shared:
		_ = g.Release()
		p.MustTry("a")
	case catalog.Permit:
		for g != nil {
			g, _ = p.Try("a", opts...)
		}
	}
}

// queueWaiters queues n waiters of a process. The returned function ends their waits.
func (w *world) queueWaiters(p *proc, name string, n int, opts []distlock.Option) (undo func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var turns []<-chan turn
	for range n {
		turns = append(turns, p.queueCtx(ctx, name, opts...))
	}
	return func() {
		cancel()
		for _, done := range turns {
			if got := <-done; got.guard != nil {
				_ = got.guard.Release()
			}
		}
	}
}

// If all holders and waiters of a lock die, a contender in any mode soon acquires the lock. If one
// of them lives, the contender gets an error, and the dead processes are evicted.
func TestAcquire_WhateverIsInTheWay_WhoeverDies(t *testing.T) {
	for mode := range allModes {
		for name, in := range obstacles {
			for _, dies := range []string{"none", "holder", "queue", "all"} {
				for _, call := range []string{"Lock", "TryLock", "LockInTransaction"} {
					full := name == "full queue" // fifty processes
					slow := full && dies != "all"
					// TestLock_FullLineOfTheLiving_IsReadAndNotWritten fills the queue with living processes.
					if slow && (call != "Lock" || dies == "none" || testing.Short()) ||
						mode != "exclusive" && (slow || call == "LockInTransaction" || full && call != "Lock") {
						continue
					}
					runInBubble(t, fmt.Sprintf("%s, %s, %s dies, %s", mode, name, dies, call),
						func(t *testing.T, w *world) { inTheWay(t, w, in, mode, dies, call) })
				}
			}
		}
	}
}

var allModes = map[string][]distlock.Option{
	"exclusive": nil, "shared": {distlock.Shared()}, "permit": {distlock.Permits(2)},
}

func inTheWay(t *testing.T, w *world, in obstacle, mode, dies, call string) {
	opts := allModes[mode]
	const (
		takeover = 2 * time.Minute // the takeover time of quick
		bound    = takeover + 3*10*time.Second
		patience = 5 * time.Minute
	)
	holder, queued, c := w.start(quick), w.start(quick), w.start(quick)
	undo := in.build(w, holder, queued, opts)
	time.Sleep(30 * time.Second)
	holderDies, queueDies := dies == "holder" || dies == "all", dies == "queue" || dies == "all"
	died := time.Now()
	if holderDies {
		holder.kill()
	}
	if queueDies {
		queued.kill()
	}
	time.Sleep(30 * time.Second) // longer than a living process is silent
	// A waiting reader does not block another reader.
	reads := mode == "shared" && !in.limit
	lives := in.holder && !holderDies || in.queue && !queueDies && !reads
	var g *distlock.TryGuard
	var err error
	start := time.Now()
	if call == "Lock" {
		turn := <-c.queue("a", append(slices.Clip(opts), distlock.WaitAtMost(patience))...)
		g, err = turn.guard, turn.err
	}
	got := g != nil
	for call != "Lock" && !got && time.Since(start) < patience {
		if call == "TryLock" {
			g, err = c.Try("a", opts...)
		} else {
			err = w.transaction(c)
		}
		if got = err == nil; got {
			break
		}
		if call == "TryLock" {
			checkRefusal(t, in, err)
		}
		time.Sleep(10 * time.Second)
	}
	took := time.Since(died)
	switch {
	case lives && got:
		t.Errorf("it had the lock after %v although one lives", took)
	case lives:
		checkRefusal(t, in, err)
		if took := time.Since(start); call == "Lock" && took != patience && !in.limit {
			t.Errorf("refused after %v, want %v", took, patience)
		}
		l := w.Lock("a")
		for _, p := range append(l.Holders(), l.Waiters...) {
			isDead := holderDies && p.Process == holder.Process() ||
				queueDies && p.Process == queued.Process()
			if isDead && took > bound {
				t.Errorf("a dead process is in the way after %v", took)
			}
		}
	case !got || took > bound:
		t.Errorf("after %v, want at most %v: %v", took, bound, err)
	case g != nil:
		w.release(g)
	}
	undo()
}

func (w *world) transaction(p *proc) error {
	return w.Mem.WithTransaction(w.T.Context(), func(ctx context.Context) error {
		return p.Lock("a").LockInTransaction(ctx, distlock.WaitAtMost(0))
	})
}

func checkRefusal(t *testing.T, in obstacle, err error) {
	t.Helper()
	if errors.Is(err, distlock.ErrPermitMismatch) != in.limit ||
		errors.Is(err, distlock.ErrHeld) == in.limit {
		t.Errorf("refused with %v", err)
	}
}
