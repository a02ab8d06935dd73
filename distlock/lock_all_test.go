package distlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// While LockAll waits for a lock, it renews the leases of the locks that it has already acquired.
// When LockAll returns, at least half of each lease is left.
func TestLockAll_WithLease_WaitsLongerThanItsLife(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		last := b.MustTry("c")
		type result struct {
			all *distlock.Guards
			err error
		}
		done := make(chan result, 1)
		start := time.Now()
		go func() {
			all, err := a.LockAll(context.Background(), []string{"a", "b", "c"}, distlock.Lease(time.Minute))
			done <- result{all, err}
		}()
		time.Sleep(10 * time.Minute)
		for _, name := range []string{"a", "b"} {
			if _, err := b.Try(name); err == nil {
				t.Errorf("%s was had meanwhile", name)
			}
		}
		if n := a.Store.Count(fault.Renew); n < 2*10 || n > 2*10*5 {
			t.Errorf("%d renewals in ten minutes of two leases of a minute", n)
		}
		w.release(last)
		got := <-done
		if got.err != nil {
			t.Fatalf("after %v: %v", time.Since(start), got.err)
		}
		for _, g := range got.all.All() {
			if left := time.Until(g.Deadline()); left < 30*time.Second || g.Err() != nil {
				t.Errorf("%s is trusted for %v, %v", g.Name(), left, g.Err())
			}
		}
		before := a.Store.Count(fault.Renew)
		time.Sleep(46 * time.Second)
		if n := a.Store.Count(fault.Renew) - before; n > 0 {
			t.Errorf("renewed %d times although the caller has them", n)
		}
		for _, g := range got.all.All() {
			wantErr(t, g.Err(), distlock.ErrLeaseExpired)
		}
	})
}

// If the server hangs, releasing ten guards of LockAll takes as long as releasing one.
func TestGuards_Release_ServerHangs_TakesTheTimeOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		hangs := func(ctx context.Context, _ fault.Call, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		}
		var took [2]time.Duration
		for i, n := range []int{1, 10} {
			var names []string
			for no := range n {
				names = append(names, fmt.Sprint("lock ", no))
			}
			all := assert.Value(a.LockAll(context.Background(), names))(t)
			a.Store.Set(hangs)
			start := time.Now()
			wantErr(t, all.Release(), distlock.ErrReleaseFailed)
			took[i] = time.Since(start)
			a.Store.Set(nil)
			time.Sleep(5 * time.Minute)
		}
		if took[1] > took[0]+time.Second || took[0] == 0 {
			t.Errorf("ten took %v, one %v", took[1], took[0])
		}
	})
}
