package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A process keeps fewer than 50 entries in a queue, however many shared callers it has.
func TestAdversary_SharedCrowd_StaysBelowTheBoundOfEntries(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		var now, most atomic.Int64
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op != fault.Enter {
				return apply()
			}
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(10*time.Millisecond + time.Duration(n)*time.Millisecond)
			defer now.Add(-1)
			return apply()
		})
		var wg sync.WaitGroup
		for range 400 {
			wg.Go(func() {
				g, err := p.Lock("a").Lock(context.Background(), distlock.Shared())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				_ = g.Release()
			})
		}
		wg.Wait()
		if n := most.Load(); n > catalog.MaxWaiters/2 {
			t.Errorf("%d entries of one process on their way at a time, want at most %d", n, catalog.MaxWaiters/2)
		}
	})
}

// If a writer arrives while a crowd enters, the process still keeps to its bound of entries in the
// document.
func TestAdversary_SharedCrowdBehindAWriter_EntriesInTheDocument(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter {
				time.Sleep(10 * time.Millisecond)
			}
			return apply()
		})
		var wg sync.WaitGroup
		hold := make(chan struct{})
		for range 400 {
			wg.Go(func() {
				g, err := p.Lock("a").Lock(context.Background(), distlock.Shared())
				if err != nil {
					t.Error(err)
					return
				}
				<-hold
				_ = g.Release()
			})
		}
		time.Sleep(15 * time.Millisecond)
		wg.Go(func() {
			g, err := other.Lock("a").Lock(context.Background())
			if err == nil {
				_ = g.Release()
			}
		})
		most := 0
		before := p.store.Count(fault.Look)
		for range 200 {
			time.Sleep(10 * time.Millisecond)
			own := 0
			for _, one := range w.lock("a").Waiters {
				if one.Process == p.Process() {
					own++
				}
			}
			most = max(most, own)
		}
		t.Logf("%d entries at most, %d looks in 2 s", most, p.store.Count(fault.Look)-before)
		close(hold)
		wg.Wait()
		if most > catalog.MaxWaiters/2 {
			t.Errorf("%d entries of one process, want at most %d", most, catalog.MaxWaiters/2)
		}
	})
}

// If all commands for one lock fail, calls for other locks still succeed.
func TestAdversary_OneLockFails_OthersAreNotDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter && call.Subject == "bad" {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.Lock("bad").Lock(ctx)
		}()
		time.Sleep(time.Minute)
		failed := 0
		for range 20 {
			g, err := p.Lock("good").Lock(t.Context(), distlock.WaitAtMost(100*time.Millisecond))
			if err != nil {
				failed++
				t.Log(err)
			} else {
				w.release(g)
			}
			time.Sleep(3 * time.Second)
		}
		cancel()
		<-done
		if failed > 0 {
			t.Errorf("%d of 20 calls for a free lock beside a bad one failed", failed)
		}
	})
}

// If all commands for one lock fail, a call for another, free lock is not delayed.
func TestAdversary_OneLockFails_LatencyOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter && call.Subject == "bad" {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = p.Lock("bad").Lock(ctx)
		}()
		var sum, worst time.Duration
		for range 20 {
			time.Sleep(time.Minute)
			began := time.Now()
			g, err := p.Lock("good").Lock(t.Context())
			assert.Must(t, err)
			took := time.Since(began)
			sum, worst = sum+took, max(worst, took)
			w.release(g)
		}
		cancel()
		<-done
		if worst > 100*time.Millisecond {
			t.Errorf("a free lock took %v on average, %v at worst, beside a bad one", sum/20, worst)
		}
	})
}

// A call whose limit fits gets a free permit, although two callers with another limit hold both
// entries of the process.
func TestAdversary_OtherLimitsHoldBothEntries_FittingCallIsServed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dead, p := w.start(nil), w.start(nil)
		dead.mustTry("a", distlock.Permits(5))
		dead.kill()
		time.Sleep(5 * time.Minute) // the holder is silent but has not expired
		ctx, cancel := context.WithCancel(context.Background())
		first, second := p.queueCtx(ctx, "a", distlock.Permits(3)), p.queueCtx(ctx, "a", distlock.Permits(3))
		time.Sleep(time.Minute)
		select {
		case got := <-first:
			t.Fatalf("the first one ended: %v", got.err)
		default:
		}
		began := time.Now()
		g, err := p.Lock("a").Lock(t.Context(), distlock.Permits(5), distlock.WaitAtMost(time.Minute))
		if err != nil {
			t.Errorf("a free permit was not given within %v: %v", time.Since(began), err)
			g2, err := p.Lock("a").TryLock(t.Context(), distlock.Permits(5))
			t.Logf("TryLock meanwhile: %v", err)
			if err == nil {
				w.release(g2)
			}
		} else {
			w.release(g)
		}
		cancel()
		<-first
		<-second
	})
}

// A patient caller gets an entry although two loops of impatient callers with other reasons keep
// both entries of its process.
func TestAdversary_ImpatientLoops_PatientCallerIsQueued(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p, other := w.start(nil), w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, why := range []string{"x", "y"} {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					g, err := p.Lock("a").Lock(context.Background(), distlock.Why(why),
						distlock.WaitAtMost(time.Second))
					if err == nil {
						time.Sleep(100 * time.Millisecond)
						_ = g.Release()
					}
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		patient := p.queue("a", distlock.Why("z"))
		time.Sleep(time.Minute)
		queued := false
		for _, one := range w.lock("a").Waiters {
			queued = queued || one.Why == "z"
		}
		if !queued {
			t.Errorf("the first caller of the process has waited for a minute without an entry; queued: %d",
				len(w.lock("a").Waiters))
		}
		later := other.queue("a") // a minute after the patient caller
		time.Sleep(time.Second)
		w.release(g)
		select {
		case got := <-patient:
			w.release(got.guard)
			w.release(w.wantTurn(later))
		case got := <-later:
			t.Errorf("a caller of another process that came a minute later was served before")
			w.release(got.guard)
			w.release(w.wantTurn(patient))
		}
		close(stop)
		wg.Wait()
	})
}

// A call whose wait ends returns its last reason, ErrHeld, and not an old failure of another entry.
func TestAdversary_OldFailure_IsNotTheReason(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		ctx, cancel := context.WithCancel(context.Background())
		first := p.queueCtx(ctx, "a")
		time.Sleep(time.Second)
		p.store.Set(fault.Refusing(fault.Enter))
		_, err := p.Lock("a").Lock(t.Context(), distlock.Why("other"), distlock.WaitAtMost(time.Second))
		wantErr(t, err, distlock.ErrUnavailable)
		p.store.Set(nil)
		time.Sleep(10 * time.Minute)
		cancel()
		got := <-first
		wantErr(t, got.err, distlock.ErrHeld)
		if errors.Is(got.err, distlock.ErrUnavailable) {
			t.Errorf("ten minutes later: %v", got.err)
		}
		w.release(g)
	})
}

// A lock can be acquired after the store has swallowed commands. Each of these commands costs one
// CommandTimeout.
func TestAdversary_SwallowedCommands_LaterCallsGoOn(t *testing.T) {
	for _, once := range []bool{false, true} {
		runInBubble(t, fmt.Sprintf("once %v", once), func(t *testing.T, w *world) {
			p := w.start(nil)
			var swallowed atomic.Int32
			never := make(chan struct{})
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op == fault.Enter || call.Op == fault.Acquire {
					if swallowed.Add(1) <= 2 {
						<-never
						return fault.Lost(call.Op)
					}
				}
				return apply()
			})
			lock := p.Lock("a").Lock
			if once {
				lock = p.Lock("a").TryLock
			}
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					g, err := lock(ctx, distlock.Why(fmt.Sprint(i)))
					if err == nil {
						w.release(g)
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			g, err := lock(ctx, distlock.Why("later"))
			if err != nil {
				t.Errorf("an hour later: %v", err)
			} else {
				w.release(g)
			}
			close(never)
			synctest.Wait()
		})
	}
}
