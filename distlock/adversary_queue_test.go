package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// An earlier TryLock does not delay a shared call at the head of the queue. A TryLock that waits
// for abandoned tries to end delays no other call.
func TestAdversary_TryLockWaitsForOrphans_ReadersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Acquire {
				time.Sleep(4 * time.Second)
			}
			return apply()
		})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, _ = p.Lock("a").TryLock(ctx)
			cancel()
		}
		late := make(chan error, 1)
		go func() {
			g, err := p.Lock("a").TryLock(t.Context())
			if err == nil {
				_ = g.Release()
			}
			late <- err
		}()
		synctest.Wait()
		var served atomic.Int32
		for range 40 {
			go func() {
				g, err := p.Lock("a").Lock(context.Background(), distlock.Shared())
				if err == nil {
					served.Add(1)
					time.Sleep(time.Second)
					_ = g.Release()
				}
			}()
		}
		time.Sleep(500 * time.Millisecond)
		if n := served.Load(); n < 40 {
			t.Errorf("%d of 40 readers of a free lock were served beside a TryLock that waits", n)
		}
		began := time.Now()
		t.Logf("TryLock: %v, after %v more", <-late, time.Since(began))
		time.Sleep(time.Minute)
	})
}

// A lease that cannot begin causes no busy loop. Nor does a lock that is broken immediately after
// its acquisition.
func TestAdversary_LeaseCannotBegin_NoBusyLoop(t *testing.T) {
	for name, hook := range map[string]fault.Hook{
		"unknown":     fault.On(fault.Renew, func(func() error) error { return fault.Lost(fault.Renew) }),
		"unavailable": fault.Refusing(fault.Renew),
		"no match":    fault.On(fault.Renew, func(func() error) error { return catalog.ErrNoMatch }),
		"seed":        fault.Refusing(fault.SeedFence),
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			p.store.Set(hook)
			g, err := p.Lock("a").Lock(t.Context(), distlock.Lease(time.Minute), distlock.WaitAtMost(time.Minute))
			if err == nil {
				w.release(g)
			}
			n := p.store.Count(fault.Enter)
			t.Logf("%d commands to enter: %v", n, err)
			if n > 200 {
				t.Errorf("%d commands to enter in a minute", n)
			}
			time.Sleep(time.Minute)
			if l := w.lock("a"); l.Held || len(l.Waiters) > 0 {
				t.Errorf("held %v, %d waiters are left", l.Held, len(l.Waiters))
			}
		})
	}
}

// A wait sends few commands while pings fail, and continues afterwards.
func TestAdversary_HeartbeatAway_NoBusyLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		done := p.queue("a")
		other := p.queue("b0")
		w.release(w.wantTurn(other))
		p.store.Set(fault.Refusing(fault.Ping))
		time.Sleep(holdTime + pingTime)
		if p.Err() == nil {
			t.Fatal("the heartbeat lasts")
		}
		before := p.store.Total()
		more := p.queue("b", distlock.WaitAtMost(10*time.Minute))
		time.Sleep(5 * time.Minute)
		if n := p.store.Total() - before; n > 200 {
			t.Errorf("%d commands in five minutes without a heartbeat", n)
		}
		_, err := p.Lock("a").TryLock(t.Context())
		wantErr(t, err, distlock.ErrNoHeartbeat)
		p.store.Set(nil)
		time.Sleep(time.Minute)
		w.release(w.wantTurn(more))
		w.release(g)
		w.release(w.wantTurn(done))
	})
}

// A waiter sends few commands to enter, even if its entry is removed repeatedly.
func TestAdversary_PlaceRemovedAgainAndAgain_NoStorm(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		done := p.queue("a")
		began := time.Now()
		removed := 0
		for time.Since(began) < time.Minute {
			for _, one := range w.lock("a").Waiters {
				_, _, err := w.mem.Apply(t.Context(), leaveOf("a", one))
				if err == nil {
					removed++
				}
			}
			time.Sleep(time.Millisecond)
		}
		t.Logf("%d removed, %d entered, %d looks", removed, p.store.Count(fault.Enter), p.store.Count(fault.Look))
		if n := p.store.Count(fault.Enter); n > 200 {
			t.Errorf("%d commands to enter in a minute", n)
		}
		w.release(g)
		w.release(w.wantTurn(done))
	})
}

// A call returns when its context ends, whichever command hangs. The call leaves no session and no
// waiter.
func TestAdversary_CallReturnsWhenItsContextEnds_WhateverHangs(t *testing.T) {
	for _, op := range []fault.Op{fault.Enter, fault.Acquire, fault.Look, fault.Evict, fault.Hello,
		fault.Confirm, fault.Condemn, fault.GrantNext, fault.HeldOrFree, fault.Renew, fault.Release} {
		for _, once := range []bool{true, false} {
			runInBubble(t, fmt.Sprintf("%s %v", op, once), func(t *testing.T, w *world) {
				dead, p := w.start(nil), w.start(nil)
				dead.mustTry("a")
				dead.kill()
				_, _ = p.try("a")
				time.Sleep(takeoverTime + time.Minute)
				p.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
					if call.Op == op {
						<-ctx.Done()
						return errors.Join(ctx.Err(), fault.Lost(call.Op))
					}
					return apply()
				})
				for i := range 12 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(50+i*1000)*time.Millisecond)
					began := time.Now()
					lock := p.Lock("a").Lock
					if once {
						lock = p.Lock("a").TryLock
					}
					g, err := lock(ctx, distlock.Lease(time.Minute))
					if took := time.Since(began); took > time.Duration(60+i*1000)*time.Millisecond {
						t.Errorf("it took %v with %v: %v", took, time.Duration(50+i*1000)*time.Millisecond, err)
					}
					cancel()
					if err == nil {
						go func() { _ = g.Release() }()
					}
					time.Sleep(time.Second)
				}
				p.store.Set(nil)
				time.Sleep(3 * pingTime)
				g, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(time.Minute))
				if assert.NoErr(t, err, "Lock"); err == nil {
					w.release(g)
				}
				if l := w.lock("a"); l.Held || len(l.Waiters) > 0 {
					t.Errorf("held %v, %d waiters are left", l.Held, len(l.Waiters))
				}
			})
		}
	}
}

func leaveOf(name string, p catalog.Participant) catalog.Transition {
	return transition.Leave{Session: catalog.Session{Name: name, TS: p.TS}}
}
