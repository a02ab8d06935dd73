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

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

var errWhy = errors.New("why it ended")

// If the context of a call ends, the error matches context.DeadlineExceeded and the cause, at every
// step of the call.
func TestAdversary_TimeoutCause_MatchesBoth(t *testing.T) {
	for name, call := range map[string]func(context.Context, *distlock.DistributedLock) error{
		"Lock": func(ctx context.Context, l *distlock.DistributedLock) error {
			_, err := l.Lock(ctx)
			return err
		},
		"TryLock": func(ctx context.Context, l *distlock.DistributedLock) error {
			_, err := l.TryLock(ctx)
			return err
		},
		"Lock with a lease": func(ctx context.Context, l *distlock.DistributedLock) error {
			_, err := l.Lock(ctx, distlock.Lease(time.Minute))
			return err
		},
		"TryLock with a lease": func(ctx context.Context, l *distlock.DistributedLock) error {
			_, err := l.TryLock(ctx, distlock.Lease(time.Minute))
			return err
		},
		"LockInTransaction": func(ctx context.Context, l *distlock.DistributedLock) error {
			return l.LockInTransaction(ctx)
		},
	} {
		for _, slow := range []fault.Op{"", "before", fault.Enter, fault.Acquire, fault.Renew, fault.Look} {
			runInBubble(t, name+" "+string(slow), func(t *testing.T, w *world) {
				holder, p := w.start(nil), w.start(nil)
				if slow != fault.Enter && slow != fault.Acquire && slow != fault.Renew {
					holder.mustTry("a")
				}
				p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
					if call.Op == slow {
						time.Sleep(100 * time.Millisecond)
					}
					return apply()
				})
				ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWhy)
				defer cancel()
				if slow == "before" {
					time.Sleep(time.Second)
				}
				began := time.Now()
				err := call(ctx, p.Lock("a"))
				if err == nil || errors.Is(err, distlock.ErrNoTransactions) ||
					ctx.Err() == nil && errors.Is(err, distlock.ErrHeld) {
					t.Skipf("%v", err)
				}
				if time.Since(began) > 60*time.Millisecond {
					t.Errorf("it took %v", time.Since(began))
				}
				wantErr(t, err, context.DeadlineExceeded)
				wantErr(t, err, errWhy)
				time.Sleep(time.Minute)
			})
		}
	}
}

// A call with WaitAtMost returns a documented error such as ErrHeld or ErrUnavailable, even if the
// time ends between the grant and the lease's start.
func TestAdversary_WaitAtMostWithLease_ListedErrors(t *testing.T) {
	listed := []error{distlock.ErrHeld, distlock.ErrUnavailable, distlock.ErrOutcomeUnknown, distlock.ErrLockLost}
	for i := range 60 {
		runInBubble(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			p := w.start(nil)
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op == fault.Enter || call.Op == fault.Renew {
					time.Sleep(50 * time.Millisecond)
				}
				return apply()
			})
			wait := []time.Duration{50, 100, 75, 25}[i%4] * time.Millisecond
			g, err := p.Lock("a").Lock(t.Context(), distlock.Lease(time.Minute), distlock.WaitAtMost(wait))
			defer time.Sleep(10 * time.Second) // until the pending commands end
			if err == nil {
				w.release(g)
				return
			}
			ok := false
			for _, one := range listed {
				ok = ok || errors.Is(err, one)
			}
			if !ok {
				t.Errorf("%v: %v", wait, err)
			}
		})
	}
}

// TakeoverEvidence is empty if the previous holder released the lock, even if a dead waiter was
// evicted.
func TestAdversary_DeadWaiterEvicted_NoTakeoverOfTheHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, dead, p := w.start(nil), w.start(nil), w.start(nil)
		g := holder.mustTry("a")
		lost := dead.queue("a")
		dead.kill()
		released := false
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			err := apply()
			if call.Op == fault.Evict && err == nil {
				released = true
				_ = g.Release()
			}
			return err
		})
		for range 60 {
			got, err := p.try("a")
			if err == nil {
				if !released {
					t.Fatal("acquired before the release")
				}
				if e := got.TakeoverEvidence(); e != "" {
					t.Errorf("the holder released the lock, and the guard has evidence: %s", e)
				}
				w.release(got)
				_ = dead.Close(context.Background())
				<-lost
				return
			}
			time.Sleep(pingTime)
		}
		t.Skip("never acquired")
	})
}

// During Close every call of a changing crowd ends. Afterwards no guard is returned, and the
// document keeps no session of the process.
func TestAdversary_CloseInACrowd_NothingIsLeft(t *testing.T) {
	for seed := range 25 {
		runInBubble(t, fmt.Sprint(seed), func(t *testing.T, w *world) {
			r := newDice(uint64(seed) + 77)
			p, other := w.start(nil), w.start(nil)
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op != fault.Ping && call.Op != fault.Notice {
					time.Sleep(time.Duration(r.n(20)) * time.Millisecond)
				}
				err := apply()
				if call.Op != fault.Notice {
					time.Sleep(time.Duration(r.n(20)) * time.Millisecond)
				}
				return err
			})
			var closed atomic.Bool
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					for {
						name := []string{"a", "b"}[r.n(2)]
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.n(200))*time.Millisecond)
						if i%3 == 0 {
							cancel()
							ctx, cancel = context.WithCancel(context.Background())
						}
						lock := p.Lock(name).Lock
						if i%5 == 0 {
							lock = p.Lock(name).TryLock
						}
						over := closed.Load()
						g, err := lock(ctx, distlock.Why(fmt.Sprint(i%2)))
						cancel()
						switch {
						case err == nil && over:
							t.Error("a guard after Close")
						case errors.Is(err, distlock.ErrClosed):
							return
						case err != nil && over:
							t.Errorf("after Close: %v", err)
							return
						case err == nil:
							time.Sleep(time.Duration(r.n(10)) * time.Millisecond)
							_ = g.Release()
						}
					}
				})
			}
			g := other.queue("a")
			time.Sleep(time.Duration(200+r.n(500)) * time.Millisecond)
			began := time.Now()
			assert.NoErr(t, p.Close(context.Background()), "Close")
			if took := time.Since(began); took > time.Second {
				t.Errorf("Close took %v", took)
			}
			closed.Store(true)
			wg.Wait()
			for _, name := range []string{"a", "b"} {
				l := w.lock(name)
				for _, one := range append(l.Holders(), l.Waiters...) {
					if one.Process == p.Process() {
						t.Errorf("%q: a session of the closed process is left", name)
					}
				}
			}
			w.release(w.wantTurn(g))
			synctest.Wait()
		})
	}
}

// Calls with different limits all end, and never hold the lock at the same time.
func TestAdversary_TwoLimits_NoForeignGuard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		var wg sync.WaitGroup
		var in [6]atomic.Int32
		end := time.Now().Add(3 * time.Second)
		for i := range 12 {
			p := []*proc{a, b}[i%2]
			limit := 2 + i%3
			wg.Go(func() {
				for time.Now().Before(end) {
					g, err := p.Lock("a").Lock(context.Background(), distlock.Permits(limit),
						distlock.WaitAtMost(300*time.Millisecond))
					if err != nil {
						if !errors.Is(err, distlock.ErrPermitMismatch) && !errors.Is(err, distlock.ErrHeld) {
							t.Errorf("%v", err)
						}
						var m *distlock.PermitMismatchError
						if errors.As(err, &m) && int(m.Asked) != limit {
							t.Errorf("asked for %d: %v", limit, err)
						}
						time.Sleep(7 * time.Millisecond)
						continue
					}
					if n := in[limit].Add(1); int(n) > limit {
						t.Errorf("%d of %d permits", n, limit)
					}
					for l := range in {
						if l != limit && in[l].Load() != 0 {
							t.Errorf("limits %d and %d at a time", l, limit)
						}
					}
					time.Sleep(time.Millisecond)
					in[limit].Add(-1)
					_ = g.Release()
				}
			})
		}
		wg.Wait()
	})
}
