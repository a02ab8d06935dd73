package distlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Tries to break: a waiter whose entering is carried out after the caller gave up leaves no place
// in the line for longer than a ping, though the lock never changes its holder, and nobody behind
// it waits a moment longer for it.
func TestLock_EntersAfterGivingUp_LeavesTheLineWithinAPing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		var late func() error
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter && late == nil {
				late = apply // on its way still when the connection breaks
				return fault.Lost(call.Op)
			}
			if call.Op == fault.Enter {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		got := <-b.queue("a", distlock.WaitAtMost(3*time.Second))
		if got.err == nil || late == nil {
			t.Fatalf("Lock: %v, %v", got.guard, got.err)
		}
		time.Sleep(10 * pingTime) // whatever looks for it at once has looked
		b.store.Set(nil)
		assert.Must(t, late())
		next := c.queue("a")
		assert.MustEqual(t, len(w.lock("a").Waiters), 2, "%d wait, want the ghost and the next (%d)")
		time.Sleep(pingTime * 12 / 10)
		synctest.Wait()
		assert.Equal(t, len(w.lock("a").Waiters), 1, "%d wait after a ping, want only the next (%d)")
		if s := b.Stats(); s.Ghosts != 1 {
			t.Errorf("%d ghosts counted, want 1", s.Ghosts)
		}
		w.release(g)
		w.release(w.wantTurn(next))
	})
}

// Tries to break: a late release that is done while the reaper's read is under way, which still
// shows the lock held, is no ghost: it is told once, and nobody is warned.
func TestReap_ReleasedDuringItsRead_IsNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.mustTry("a")
		var taken atomic.Bool // by the server, from now on
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Release && !taken.Load():
				return fault.Refused(call.Op)
			case call.Op == fault.Release:
				time.Sleep(100 * time.Millisecond)
			case call.Op == fault.Held:
				defer time.Sleep(time.Second) // the reply is slow
			}
			return apply()
		})
		wantErr(t, g.Release(), distlock.ErrReleaseFailed)
		synctest.Wait() // the first of the late tries
		taken.Store(true)
		d.take()
		time.Sleep(3 * pingTime)
		synctest.Wait()
		late := 0
		for _, e := range d.take() {
			if e.Kind == distlock.EventReleasedLate {
				late++
			}
		}
		if s := p.Stats(); late != 1 || s.Late != 1 || s.Ghosts != 0 || w.lock("a").Held {
			t.Errorf("told %d times, %d late releases, %d ghosts, held: %v", late, s.Late, s.Ghosts,
				w.lock("a").Held)
		}
		p.store.Set(nil)
		time.Sleep(2 * time.Second) // a reply may be on its way
	})
}
