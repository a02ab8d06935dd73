package distlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/fault"
)

// Tries to break: a crowd that is cancelled at once returns at once, and its places are given up in
// the background, a few at a time; what was granted to them meanwhile is granted on.
func TestLock_CrowdIsCancelled_ReturnsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		var now, most atomic.Int32
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release {
				n := now.Add(1)
				defer now.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(100 * time.Millisecond)
			}
			return apply()
		})
		ctx, cancel := context.WithCancel(context.Background())
		const crowd = 100
		ended := make(chan error, crowd)
		for range crowd {
			go func() { _, err := p.Lock("a").Lock(ctx); ended <- err }()
		}
		synctest.Wait()
		if n := len(w.lock("a").Waiters); n != crowd {
			t.Fatalf("%d in line, want %d", n, crowd)
		}
		start := time.Now()
		cancel()
		for range crowd {
			wantErr(t, <-ended, context.Canceled)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the crowd was gone after %v, want at once", took)
		}
		_ = g.Release() // granted to a waiter that has gone
		time.Sleep((crowd/16 + 3) * 100 * time.Millisecond)
		synctest.Wait()
		if l := w.lock("a"); l.Held || len(l.Waiters) > 0 {
			t.Errorf("held %v, %d in line, want nobody", l.Held, len(l.Waiters))
		}
		if n := most.Load(); n > 16 || n < 2 {
			t.Errorf("%d places were given up at a time, want 2 to 16", n)
		}
		if late := p.Heartbeat().Late; late != 0 {
			t.Errorf("%d late releases, want 0: nothing failed", late)
		}
	})
}
