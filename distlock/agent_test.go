package distlock_test

import (
	"context"
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

// A process with many callers of a shared lock sends at most 50 enter commands at a time.
func TestLock_SharedCrowd_FewEntries(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		var now, most atomic.Int64
		p.store.Set(fault.On(fault.Enter, func(apply func() error) error {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(10*time.Millisecond + time.Duration(n)*time.Millisecond)
			return apply()
		}))
		var wg sync.WaitGroup
		for range 120 {
			wg.Go(func() {
				g, err := p.Lock("a").Lock(context.Background(), distlock.Shared())
				assert.NoErr(t, err)
				time.Sleep(time.Second)
				_ = g.Release()
			})
		}
		wg.Wait()
		if n := most.Load(); n > catalog.MaxWaiters/2 {
			t.Errorf("%d entries of one process on their way, want at most %d", n, catalog.MaxWaiters/2)
		}
	})
}

// If the commands for one lock fail, the acquisition of another lock is not delayed.
func TestLock_CommandsForOneLockFail_OthersAreNotDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter && call.Subject == "bad" {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		ctx, cancel := context.WithCancel(context.Background())
		bad := p.queueCtx(ctx, "bad")
		for range 20 {
			time.Sleep(time.Minute)
			good := w.ended(p.queue("good"))
			assert.Must(t, good.err)
			w.release(good.guard)
			if good.after > 100*time.Millisecond {
				t.Errorf("a free lock took %v beside a bad one", good.after)
			}
		}
		cancel()
		<-bad
	})
}

// A process has at most two queue entries. Even if callers with a short WaitAtMost use both of them
// again and again, a caller that waits longer gets a place in the queue.
func TestLock_BesideImpatientLoops_PatientCallerIsQueued(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p, other := w.start(nil), w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		var stop atomic.Bool
		var wg sync.WaitGroup
		for _, why := range []string{"x", "y"} {
			wg.Go(func() {
				for !stop.Load() {
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
		later := other.queue("a")
		time.Sleep(time.Second)
		w.release(g)
		g = w.wantTurn(patient)
		w.wantWaiting(later)
		w.release(g)
		w.release(w.wantTurn(later))
		stop.Store(true)
		wg.Wait()
	})
}

// If two acquire commands of a process never get a reply, a later call still acquires the lock.
func TestAcquire_CommandsSwallowed_LaterCallsGoOn(t *testing.T) {
	for name, call := range map[string]func(*distlock.DistributedLock, context.Context,
		...distlock.Option) (*distlock.TryGuard, error){
		"Lock": (*distlock.DistributedLock).Lock, "TryLock": (*distlock.DistributedLock).TryLock,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			var swallowed atomic.Int32
			never := make(chan struct{})
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if (call.Op == fault.Enter || call.Op == fault.Acquire) && swallowed.Add(1) <= 2 {
					<-never
					return fault.Lost(call.Op)
				}
				return apply()
			})
			acquire := func(within time.Duration, why string) error {
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				g, err := call(p.Lock("a"), ctx, distlock.Why(why))
				if err == nil {
					w.release(g)
				}
				return err
			}
			for i := range 2 {
				wantErr(t, acquire(time.Second, fmt.Sprint(i)), context.DeadlineExceeded)
			}
			time.Sleep(time.Minute)
			assert.NoErr(t, acquire(time.Hour, "later"))
			close(never)
			synctest.Wait()
		})
	}
}

// If a lease cannot begin because commands fail, the process does not repeat them in a busy loop.
// After the call has ended, the lock is free.
func TestLease_CannotBegin_NoBusyLoop(t *testing.T) {
	for name, hook := range map[string]fault.Hook{
		"unknown":     fault.On(fault.Renew, func(func() error) error { return fault.Lost(fault.Renew) }),
		"unavailable": fault.Refusing(fault.Renew),
		"no match":    fault.On(fault.Renew, func(func() error) error { return catalog.ErrNoMatch }),
		"seed":        fault.Refusing(fault.SeedFence),
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			p.store.Set(hook)
			got := <-p.queue("a", distlock.Lease(time.Minute), distlock.WaitAtMost(time.Minute))
			_ = got.guard.Release()
			if n := p.store.Count(fault.Enter); n > 200 {
				t.Errorf("%d commands to enter in a minute", n)
			}
			time.Sleep(time.Minute)
			if l := w.lock("a"); l.Held || len(l.Waiters) > 0 {
				t.Errorf("held %v, %d waiters are left", l.Held, len(l.Waiters))
			}
		})
	}
}

// While the pings of a process fail, its waiters send few commands. When the pings succeed again,
// the waiters acquire their locks.
func TestLock_HeartbeatAway_NoBusyLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		waits := p.queue("a")
		p.store.Set(fault.Refusing(fault.Ping))
		time.Sleep(holdTime + pingTime)
		if p.Err() == nil {
			t.Fatal("the heartbeat lasts")
		}
		before := p.store.Total()
		free := p.queue("b", distlock.WaitAtMost(10*time.Minute))
		time.Sleep(5 * time.Minute)
		if n := p.store.Total() - before; n > 200 {
			t.Errorf("%d commands in five minutes without a heartbeat", n)
		}
		wantErr(t, assert.Err(p.try("a")), distlock.ErrNoHeartbeat)
		p.store.Set(nil)
		w.release(w.wantTurn(free))
		w.release(g)
		w.release(w.wantTurn(waits))
	})
}
