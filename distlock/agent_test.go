package distlock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
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
		p.Store.Set(fault.On(fault.Enter, func(apply func() error) error {
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
			p.Store.Set(hook)
			got := <-p.queue("a", distlock.Lease(time.Minute), distlock.WaitAtMost(time.Minute))
			_ = got.guard.Release()
			if n := p.Store.Count(fault.Enter); n > 200 {
				t.Errorf("%d commands to enter in a minute", n)
			}
			time.Sleep(time.Minute)
			if l := w.Lock("a"); l.Held || len(l.Waiters) > 0 {
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
		g := holder.MustTry("a")
		waits := p.queue("a")
		p.Store.Set(fault.Refusing(fault.Ping))
		time.Sleep(holdTime + pingTime)
		if p.Err() == nil {
			t.Fatal("the heartbeat lasts")
		}
		before := p.Store.Total()
		free := p.queue("b", distlock.WaitAtMost(10*time.Minute))
		time.Sleep(5 * time.Minute)
		if n := p.Store.Total() - before; n > 200 {
			t.Errorf("%d commands in five minutes without a heartbeat", n)
		}
		wantErr(t, assert.Err(p.Try("a")), distlock.ErrNoHeartbeat)
		p.Store.Set(nil)
		w.release(w.wantTurn(free))
		w.release(g)
		w.release(w.wantTurn(waits))
	})
}
