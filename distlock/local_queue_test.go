package distlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

func (p *proc) briefly(d time.Duration, opts ...distlock.Option) {
	p.w.T.Helper()
	got := <-p.queue("a", append(opts, distlock.WaitAtMost(d))...)
	if held(p.w.T, got.err); got.after != d {
		p.w.T.Errorf("refused after %v, want %v", got.after, d)
	}
}

// After a short wait, a process keeps its queue entry for a moment. If no caller uses the entry
// again, the process removes it, even if the lock was granted to it. The next waiter is not
// delayed.
func TestWaitAtMost_DoesNotComeAgain_LeavesSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const soon = 10 * time.Millisecond
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.MustTry("a")
		b.briefly(time.Second)
		assert.Equal(t, len(w.Lock("a").Waiters), 1,
			"%d are queued, want the entry that may be used again (%d)")
		time.Sleep(soon)
		synctest.Wait()
		assert.Equal(t, len(w.Lock("a").Waiters), 0, "%d are queued, want none (%d)")
		b.briefly(time.Second)
		waits := c.queue("a")
		at := time.Now()
		w.release(g) // granted to the entry without a caller
		w.release(w.wantTurn(waits))
		if took := time.Since(at); took > soon {
			t.Errorf("the next had it after %v", took)
		}
	})
}
