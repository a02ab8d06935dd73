package distlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/fault"
)

// Tries to break: a waiter whose entering is carried out after the caller gave up leaves no place in
// the line for longer than a ping, though the lock never changes its holder, and nobody behind it waits
// a moment longer for it.
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
		if err := late(); err != nil {
			t.Fatal(err)
		}
		next := c.queue("a")
		if n := len(w.lock("a").Waiters); n != 2 {
			t.Fatalf("%d wait, want the ghost and the next", n)
		}
		time.Sleep(pingTime * 12 / 10)
		synctest.Wait()
		if n := len(w.lock("a").Waiters); n != 1 {
			t.Errorf("%d wait after a ping, want only the next", n)
		}
		if s := b.Stats(); s.Ghosts != 1 {
			t.Errorf("%d ghosts counted, want 1", s.Ghosts)
		}
		w.release(g)
		w.release(w.wantTurn(next))
	})
}
