package distlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// D2, I4: a holder that is cut off loses its guard at the deadline, before a takeover is allowed.
// Err, the context and its cause report the loss. R4: the guard stays lost when the network is
// back.
func TestGuard_CutOff_LostAtTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		p.kill()
		time.Sleep(time.Until(g.Deadline()) - time.Millisecond)
		assert.Must(t, g.Err(), "lost before the deadline")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantErr(t, g.Err(), distlock.ErrLockLost)
		wantErr(t, context.Cause(g.Context()), distlock.ErrLockLost)
		p.store.Set(nil)
		time.Sleep(5 * pingTime)
		wantErr(t, g.Err(), distlock.ErrLockLost)
		if w.lock("a").TS != g.Session() || !w.lock("a").Held {
			t.Error("a lost guard's lock was freed under its user: it belongs to Release or a takeover")
		}
		wantErr(t, g.Release(), distlock.ErrLockLost)
		w.wantFree("a")
	})
}

// R4: if the deadline of a guard passes while Verify waits for its reply, the guard stays lost,
// although the reply shows its session.
func TestGuard_Verify_AnsweredAfterTheDeadline_IsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(func(c *distlock.Config) { c.CommandTimeout = 3 * pingTime })
		g := p.mustTry("a")
		p.store.Set(fault.Refusing(fault.Ping))
		deadline := g.Deadline()
		time.Sleep(time.Until(deadline) - 2*time.Second)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Ping && time.Now().Before(deadline):
				return fault.Refused(call.Op)
			case call.Op == fault.Read:
				defer time.Sleep(2 * pingTime) // makes the reply slow
			}
			return apply()
		})
		pings := p.Stats().Pings
		wantErr(t, g.Verify(t.Context()), distlock.ErrLockLost)
		wantErr(t, g.Err(), distlock.ErrLockLost)
		if p.Stats().Pings == pings {
			t.Error("no ping was acknowledged meanwhile")
		}
	})
}

// K5, K6: the guard's context ends with its parent context. The lock is held until Release, which
// still works.
func TestGuard_ParentContextEnds_StillHeldUntilRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		ctx, cancel := context.WithCancel(context.Background())
		g := assert.Value(p.Lock("a").TryLock(ctx))(t)
		cancel()
		synctest.Wait()
		wantErr(t, g.Context().Err(), context.Canceled)
		if g.Err() != nil || !w.lock("a").Held {
			t.Errorf("guard: %v, held: %v", g.Err(), w.lock("a").Held)
		}
		if err := g.Release(); err != nil || w.lock("a").Held {
			t.Errorf("release: %v, held: %v", err, w.lock("a").Held)
		}
	})
}

// Release tries three times, with pauses of 2 and 4 s. Then the late-release list frees the lock.
func TestRelease_Fails_ThreeTriesThenLateList(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		p.store.Set(fault.Refusing(fault.Release))
		start := time.Now()
		err := g.Release()
		var failed *distlock.ReleaseError
		if !errors.As(err, &failed) || failed.Tries != 3 {
			t.Fatalf("error is %v, want a *ReleaseError after 3 tries", err)
		}
		wantErr(t, err, distlock.ErrReleaseFailed)
		wantErr(t, err, distlock.ErrUnavailable)
		if strings.Contains(err.Error(), "catalog: ") {
			t.Errorf("it names a package that nobody called: %v", err)
		}
		assert.Equal(t, time.Since(start), 6*time.Second, "took %v, want pauses of 2 s and 4 s (%v)")
		p.store.Set(nil)
		time.Sleep(pingTime*11/10 + slack)
		synctest.Wait()
		w.wantFree("a")
	})
}

// I6: if the reply of a release is lost, the retry returns nil and does not affect the new holder.
func TestRelease_ReplyLost_RetryTouchesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g := p.mustTry("a")
		var next *distlock.TryGuard
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release && next == nil {
				_ = apply()
				next = other.mustTry("a")
				return fault.Lost(call.Op)
			}
			return apply()
		})
		if err := g.Release(); err != nil {
			t.Errorf("release: %v, want nil: it can only have been us", err)
		}
		assert.NoErr(t, next.Verify(t.Context()), "new holder")
	})
}

// K4: Close ends the pauses of a release early.
func TestRelease_CloseCutsThePausesShort(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		p.store.Set(fault.Refusing(fault.Release))
		start := time.Now()
		done := make(chan time.Duration)
		go func() { _ = g.Release(); done <- time.Since(start) }()
		time.Sleep(time.Second)
		err := p.Close(t.Context())
		assert.Equal(t, <-done, time.Second, "release took %v, want 1s: until Close (%v)")
		if err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("close: %v, want the lock that stays held named", err)
		}
	})
}

// Hole H8: the holder of a broken lock finds the loss with its next ping at the latest.
func TestBreak_HolderLearnsWithItsNextPing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, op := w.start(nil), w.start(nil)
		g := p.mustTry("a")
		wantErr(t, op.Break(t.Context(), "a", g.Fence()-1, "wrong fence"), distlock.ErrFenceMismatch)
		assert.Must(t, op.Break(t.Context(), "a", g.Fence(), "stuck since noon"))
		wantErr(t, op.Break(t.Context(), "a", g.Fence(), "twice"), distlock.ErrFenceMismatch)
		time.Sleep(pingTime*11/10 + time.Second)
		synctest.Wait()
		wantErr(t, g.Err(), distlock.ErrLockLost)
		next := op.mustTry("a")
		if next.Fence() <= g.Fence()+1 {
			t.Errorf("fence %d after a break of %d", next.Fence(), g.Fence())
		}
		wantErr(t, g.Release(), distlock.ErrLockLost)
		assert.NoErr(t, next.Verify(t.Context()), "the new holder")
	})
}

// F12: Check and the next ping find the loss when the lock document was deleted.
func TestGuard_DocumentDeleted_IsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g, g2 := p.mustTry("a"), p.mustTry("b")
		w.mem.Remove(catalog.LocksCollection, "a")
		w.mem.Remove(catalog.LocksCollection, "b")
		wantErr(t, g.Verify(t.Context()), distlock.ErrLockLost)
		if g2.Err() != nil {
			t.Fatal("lost before anybody asked")
		}
		time.Sleep(pingTime*11/10 + time.Second)
		synctest.Wait()
		wantErr(t, g2.Err(), distlock.ErrLockLost)
	})
}

// A Verify without a reply does not change the guard.
func TestGuard_Check_ServerAway_ChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		p.kill()
		wantErr(t, g.Verify(t.Context()), distlock.ErrUnavailable)
		assert.NoErr(t, g.Err(), "guard")
	})
}

// A guard that is dropped without Release is released once nothing references it, its context or a
// derived context. The test uses real time, because the garbage collector does not use virtual
// time.
func TestGuard_Dropped_IsReleased(t *testing.T) {
	t.Parallel()
	mem := memcatalog.New(memcatalog.Options{})
	m, err := distlock.New(t.Context(), distlock.Config{
		Catalog: mem, Ping: 5 * time.Millisecond,
	})
	assert.Must(t, err)
	defer func() { _ = m.Close(context.Background()) }()
	for _, keep := range []func(g *distlock.TryGuard) (context.Context, context.CancelFunc){
		func(*distlock.TryGuard) (context.Context, context.CancelFunc) { return nil, func() {} },
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			return g.Context(), func() {}
		},
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			again, _ := g.Reenter()
			return again.Context(), func() {}
		},
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			return context.WithValue(g.Context(), key{}, 1), func() {}
		},
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			return context.WithTimeout(g.Context(), time.Hour)
		},
	} {
		func() {
			g := assert.Value(m.Lock("a").TryLock(t.Context(), distlock.Why("forgotten")))(t)
			ctx, cancel := keep(g)
			defer cancel()
			for pings := m.Stats().Pings + 3; ctx != nil && m.Stats().Pings < pings; {
				runtime.GC()
				runtime.Gosched()
			}
			if ctx != nil && ctx.Err() != nil {
				t.Errorf("a lock of which somebody has a %T was given back: %v", ctx, context.Cause(ctx))
			}
			runtime.KeepAlive(ctx)
		}()
		for held := true; held; { // the test's time limit bounds this loop
			runtime.GC()
			runtime.Gosched()
			l, bad := catalog.ParseLock(mem.Document(catalog.LocksCollection, "a"))
			held = bad != nil || l.Held
		}
	}
}

// key is a key of context values.
type key struct{}

// C6: a panic in work releases the lock and propagates.
func TestDo_Panic_Releases(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		func() {
			defer func() {
				assert.Equal(t, recover(), "on purpose", "recovered %v, want %v")
			}()
			_ = p.Do(t.Context(), "a",
				func(context.Context, *distlock.TryGuard) error { panic("on purpose") })
		}()
		w.wantFree("a")
	})
}

// Do never returns nil if the lock was lost during work.
func TestDo_LostDuringWork_IsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		err := p.Do(t.Context(), "a", func(ctx context.Context, _ *distlock.TryGuard) error {
			p.kill()
			<-ctx.Done()
			p.store.Set(nil)
			return nil
		})
		wantErr(t, err, distlock.ErrLockLost)
		mine := errors.New("mine")
		err = p.Do(t.Context(), "b", func(context.Context, *distlock.TryGuard) error { return mine })
		wantErr(t, err, mine)
	})
}

// Several goroutines may release one guard concurrently. All wait for one release, each within its
// context, and return its result. The wait does not stop the virtual clock of a test.
func TestRelease_ByManyAtOnce_OneReleaseForAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.store.Set(fault.On(fault.Release, func(apply func() error) error {
			time.Sleep(4 * time.Second)
			return apply()
		}))
		ended := make(chan error, 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := p.Do(ctx, "a", func(_ context.Context, g *distlock.TryGuard) error {
			for range cap(ended) {
				go func() { ended <- g.Release() }()
			}
			synctest.Wait()
			return nil
		})
		wantErr(t, err, distlock.ErrReleaseFailed)
		wantErr(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Since(start), time.Second, "Do took %v for a context of 1s, want %v")
		for range cap(ended) {
			assert.NoErr(t, <-ended)
		}
		assert.Equal(t, time.Since(start), 4*time.Second, "the releases took %v, want 4s (%v)")
	})
}

// A Release during Close returns when Close ends, even if the store hangs. Its error reports that
// the lock may still be held.
func TestRelease_DuringClose_ServerHangs_SaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		p.store.Set(deaf)
		ended := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { ended <- g.Release() })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_ = p.Close(ctx)
		time.Sleep(2 * distlock.Grace)
		synctest.Wait()
		if len(ended) == 0 {
			t.Fatal("Release goes on after Close")
		}
		for _, err := range []error{<-ended, g.Release()} {
			wantErr(t, err, distlock.ErrClosed)
			wantErr(t, err, distlock.ErrReleaseFailed)
		}
		time.Sleep(time.Minute) // until the hanging commands end
	})
}

// All methods refuse a released or nil guard, even if another guard of the same acquisition holds
// the lock.
func TestGuard_ReleasedOrNil_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a", distlock.Lease(time.Hour))
		if other, err := g.Reenter(); err != nil || g.Release() != nil {
			t.Fatal(err)
		} else {
			defer other.Release()
		}
		for want, g := range map[error]*distlock.TryGuard{
			distlock.ErrReleased: g, distlock.ErrBadOption: nil,
		} {
			for name, call := range map[string]func() error{
				"Err":    g.Err,
				"Verify": func() error { return g.Verify(t.Context()) },
				"Renew":  func() error { return g.Renew(t.Context()) },
				"Fenced": func() error { _, _, err := g.Fenced(nil, nil); return err },
				"InTransaction": func() error {
					return g.InTransaction(t.Context(), func(context.Context) error { return nil })
				},
				"PutFirst": func() error { return g.PutFirst(t.Context(), bson.NewObjectID()) },
				"Reenter":  func() error { _, err := g.Reenter(); return err },
			} {
				if err := call(); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			}
		}
	})
}

// A logger's panic leaves no lock held. Close neither ends the program nor hides the panic.
func TestLogger_Panics_LocksAreGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var panics atomic.Bool
		p := w.start(func(c *distlock.Config) {
			c.Logger = zerolog.New(writerFunc(func([]byte) {
				if panics.Load() {
					panic("the logger panics")
				}
			}))
		})
		kept := p.mustTry("kept")
		panics.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			_, _ = p.Lock("a").TryLock(t.Context())
		}()
		panics.Store(false)
		for i := 0; i < 100 && w.lock("a").Held; i++ {
			runtime.GC()
			time.Sleep(pingTime)
		}
		w.wantFree("a")
		panics.Store(true)
		_ = p.Close(t.Context())
		w.wantFree("kept")
		panics.Store(false)
		wantErr(t, kept.Release(), distlock.ErrReleaseFailed)
	})
}
