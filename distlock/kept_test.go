package distlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// impatient waits for "a" again and again, for so long each time, until it has it.
func (p *proc) impatient(
	t *testing.T, d time.Duration, opts ...distlock.Option,
) <-chan *distlock.TryGuard {
	got := make(chan *distlock.TryGuard, 1)
	go func() {
		for {
			g, err := p.Lock("a").Lock(context.Background(), append(opts, distlock.WaitAtMost(d))...)
			if err == nil {
				got <- g
				return
			}
			held(t, err)
		}
	}()
	synctest.Wait()
	return got
}

// briefly waits for "a" as long as that, in vain.
func (p *proc) briefly(d time.Duration, opts ...distlock.Option) {
	p.w.t.Helper()
	got := <-p.queue("a", append(opts, distlock.WaitAtMost(d))...)
	if held(p.w.t, got.err); got.after != d {
		p.w.t.Errorf("told after %v, want %v", got.after, d)
	}
}

// It tries to break: who waits for a short time again and again writes as little as who waits for a
// long one, and stands where it stood.
func TestWaitAtMost_ComesAgainAtOnce_GoesOnWithItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		got := b.impatient(t, 20*time.Millisecond)
		later := c.queue("a")
		time.Sleep(time.Second)
		if n, m := b.store.Count(fault.Enter), b.store.Count(fault.Release); n != 1 || m != 0 {
			t.Errorf("it entered %d times and left %d times in 50 waits, want once and never", n, m)
		}
		w.release(g)
		w.wantWaiting(later)
		w.release(<-got)
		w.release(w.wantTurn(later))
	})
}

// It tries to break: nobody waits for a place whose caller does not come again, granted or not.
func TestWaitAtMost_DoesNotComeAgain_LeavesSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const soon = 10 * time.Millisecond
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		b.briefly(time.Second)
		assert.Equal(t, len(w.lock("a").Waiters), 1,
			"%d stand in the line, want the one that may come again (%d)")
		time.Sleep(soon)
		synctest.Wait()
		assert.Equal(t, len(w.lock("a").Waiters), 0, "%d stand in the line, want nobody (%d)")
		b.briefly(time.Second)
		waits := c.queue("a")
		w.release(g) // to the place that is kept
		w.wantWaiting(waits)
		at := time.Now()
		w.release(w.wantTurn(waits))
		if took := time.Since(at); took > soon {
			t.Errorf("the next had it after %v", took)
		}
	})
}

// It tries to break: only who would stand in the document in the same way goes on with a place of
// another.
func TestWaitAtMost_AsksForSomethingElse_HasAPlaceOfItsOwn(t *testing.T) {
	for name, opts := range map[string][]distlock.Option{
		"mode": {distlock.Shared()}, "reason": {distlock.Why("another")},
		"label": {distlock.Label("another")},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			a, b := w.start(nil), w.start(nil)
			g := a.mustTry("a")
			b.briefly(time.Second)
			b.briefly(time.Second, opts...)
			assert.Equal(t, b.store.Count(fault.Enter), 2, "entered %d times, want each for itself (%d)")
			other := b.queue("b")
			w.release(w.wantTurn(other))
			w.release(g)
		})
	}
	runInBubble(t, "it holds something", func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g, mine := a.mustTry("a"), b.mustTry("b")
		b.briefly(time.Second, distlock.Holding(mine))
		synctest.Wait()
		assert.Equal(t, len(w.lock("a").Waiters), 0,
			"%d stand in the line: what is held there stands for a wait, want %d")
		b.briefly(time.Second)
		b.briefly(time.Second, distlock.Holding(mine))
		assert.Equal(t, b.store.Count(fault.Enter), 3, "entered %d times, want each for itself (%d)")
		w.release(mine)
		w.release(g)
	})
}

// It tries to break: a place that is kept is given back by Close, at once.
func TestWaitAtMost_PlaceIsKept_CloseGivesItBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		b.briefly(time.Second)
		at := time.Now()
		assert.NoErr(t, b.Close(t.Context()))
		if n, took := len(w.lock("a").Waiters), time.Since(at); n != 0 || took != 0 {
			t.Errorf("%d stand in the line after Close, which took %v", n, took)
		}
		w.release(g)
	})
}
