package distlock_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// LockAll with a lease waits without a limit and renews its acquired locks meanwhile. The leases
// begin when LockAll returns.
func TestLockAll_WithLease_WaitsLongerThanItsLife(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		last := b.mustTry("c")
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
			if _, err := b.try(name); err == nil {
				t.Errorf("%s was had meanwhile", name)
			}
		}
		if n := a.store.Count(fault.Renew); n < 2*10 || n > 2*10*5 {
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
		before := a.store.Count(fault.Renew)
		time.Sleep(46 * time.Second)
		if n := a.store.Count(fault.Renew) - before; n > 0 {
			t.Errorf("renewed %d times although the caller has them", n)
		}
		for _, g := range got.all.All() {
			wantErr(t, g.Err(), distlock.ErrLeaseExpired)
		}
	})
}

// The cost of one lock in LockAll does not grow with the number of locks, with or without a bound
// on the wait. Acquiring 2,000 locks at once may cost 2.5 times as much as eight times 250 locks,
// in the best of three runs. Earlier versions needed 4.3 and 8.1 times as much.
func TestLockAll_ManyNames_CostIsLinear(t *testing.T) {
	m := assert.Value(distlock.New(t.Context(), distlock.Config{
		Catalog: memcatalog.New(memcatalog.Options{}),
	}))(t)
	defer func() { assert.NoErr(t, m.Close(context.Background())) }()
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprint("lock ", i)
	}
	took := func(size int, opts ...distlock.Option) (sum time.Duration) {
		for some := range slices.Chunk(names, size) {
			start := time.Now()
			all := assert.Value(m.LockAll(t.Context(), some, opts...))(t)
			sum += time.Since(start)
			assert.NoErr(t, all.Release())
		}
		return sum
	}
	for _, opts := range [][]distlock.Option{nil, {distlock.WaitAtMost(time.Hour)}} {
		best := math.Inf(1)
		for range 3 {
			few := took(250, opts...)
			best = min(best, float64(took(2000, opts...))/float64(few))
		}
		if best > 2.5 {
			t.Errorf("with %d options: 2,000 at once cost %.1f times what 8 times 250 do", len(opts), best)
		}
	}
}

// If the server hangs, the release of ten locks takes as long as the release of one.
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
			a.store.Set(hangs)
			start := time.Now()
			wantErr(t, all.Release(), distlock.ErrReleaseFailed)
			took[i] = time.Since(start)
			a.store.Set(nil)
			time.Sleep(5 * time.Minute)
		}
		if took[1] > took[0]+time.Second || took[0] == 0 {
			t.Errorf("ten took %v, one %v", took[1], took[0])
		}
	})
}
