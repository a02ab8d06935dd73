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
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A holder that is cut off from the server loses its guard at the deadline. Err and the context of
// the guard report the loss. The guard stays lost when the server can be reached again.
func TestGuard_CutOff_LostAtTheDeadline(t *testing.T) { // D2, I4, R4
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a")
		p.kill()
		time.Sleep(time.Until(g.Deadline()) - time.Millisecond)
		assert.Must(t, g.Err(), "lost before the deadline")
		s := p.Stats()
		assert.Equal(t, s.PingAge+s.TrustedFor, holdTime, "ping age and trust are %v, want %v")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantErr(t, g.Err(), distlock.ErrLockLost)
		wantErr(t, context.Cause(g.Context()), distlock.ErrLockLost)
		time.Sleep(time.Minute)
		assert.Equal(t, p.Stats().TrustedFor, 0, "trusted for %v after the deadline, want %v")
		p.Store.Set(nil)
		time.Sleep(5 * pingTime)
		wantErr(t, g.Err(), distlock.ErrLockLost)
		if w.Lock("a").TS != g.Session() || !w.Lock("a").Held {
			t.Error("a lost guard's lock was freed under its user: it belongs to Release or a takeover")
		}
		wantErr(t, g.Release(), distlock.ErrLockLost)
		w.wantFree("a")
	})
}

// If the deadline passes while Verify waits for a reply, the guard is lost, even if the reply shows
// that its session still holds the lock.
func TestGuard_Verify_AnsweredAfterTheDeadline_IsLost(t *testing.T) { // R4
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(func(c *distlock.Config) { c.CommandTimeout = 3 * pingTime })
		g := p.MustTry("a")
		p.Store.Set(fault.Refusing(fault.Ping))
		deadline := g.Deadline()
		time.Sleep(time.Until(deadline) - 2*time.Second)
		p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
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

// If the context of the acquisition ends, the guard's context ends too, but the lock is held until
// Release.
func TestGuard_ParentContextEnds_StillHeldUntilRelease(t *testing.T) { // K5, K6
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		ctx, cancel := context.WithCancel(context.Background())
		g := assert.Value(p.Lock("a").TryLock(ctx))(t)
		cancel()
		synctest.Wait()
		wantErr(t, g.Context().Err(), context.Canceled)
		if g.Err() != nil || !w.Lock("a").Held {
			t.Errorf("guard: %v, held: %v", g.Err(), w.Lock("a").Held)
		}
		if err := g.Release(); err != nil || w.Lock("a").Held {
			t.Errorf("release: %v, held: %v", err, w.Lock("a").Held)
		}
	})
}

// Release tries three times, with pauses of 2 s and 4 s. If all tries fail, the process releases
// the lock after its next ping, even if it cannot read the list of its sessions.
func TestRelease_Fails_ThreeTriesThenLateList(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a")
		p.Store.Set(fault.Refusing(fault.Release, fault.Held))
		start := time.Now()
		err := g.Release()
		var failed *distlock.ReleaseError
		if !errors.As(err, &failed) || failed.Tries != 3 {
			t.Fatalf("error is %v, want a *ReleaseError after 3 tries", err)
		}
		wantErr(t, err, distlock.ErrReleaseFailed)
		wantErr(t, err, distlock.ErrUnavailable)
		if strings.Contains(err.Error(), "catalog: ") {
			t.Errorf("it names a package that the caller does not know: %v", err)
		}
		assert.Equal(t, time.Since(start), 6*time.Second, "took %v, want pauses of 2 s and 4 s (%v)")
		synctest.Wait()                         // until the one try in the background is over
		p.Store.Set(fault.Refusing(fault.Held)) // as for a large collection without an index
		time.Sleep(pingTime*11/10 + slack)
		synctest.Wait()
		w.wantFree("a")
	})
}

// If the reply to a release is lost, Release tries again and returns nil. The second try does not
// release the lock of the next holder.
func TestRelease_ReplyLost_RetryTouchesNothing(t *testing.T) { // I6
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g := p.MustTry("a")
		var next *distlock.TryGuard
		p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release && next == nil {
				_ = apply()
				next = other.MustTry("a")
				return fault.Lost(call.Op)
			}
			return apply()
		})
		if err := g.Release(); err != nil {
			t.Errorf("release: %v, want nil: only this guard can have released it", err)
		}
		assert.NoErr(t, next.Verify(t.Context()), "new holder")
	})
}

// If a lock document is deleted, Verify detects the loss, and so does the next ping.
func TestGuard_DocumentDeleted_IsLost(t *testing.T) { // F12
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g, g2 := p.MustTry("a"), p.MustTry("b")
		w.Mem.Remove(catalog.LocksCollection, "a")
		w.Mem.Remove(catalog.LocksCollection, "b")
		wantErr(t, g.Verify(t.Context()), distlock.ErrLockLost)
		if g2.Err() != nil {
			t.Fatal("lost before a command showed the loss")
		}
		time.Sleep(pingTime*11/10 + time.Second)
		synctest.Wait()
		wantErr(t, g2.Err(), distlock.ErrLockLost)
	})
}

// If the function given to Do panics, Do releases the lock and passes the panic on.
func TestDo_Panic_Releases(t *testing.T) { // C6
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

// If several goroutines release one guard, the process sends one release, and all calls return its
// result. If the context of Do ends first, Do returns without that result.
func TestRelease_ByManyAtOnce_OneReleaseForAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(fault.Slow(4*time.Second, 0, fault.Release))
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

// Err, Verify, Renew, Fenced, InTransaction, PutFirst and Reenter of a released guard return
// ErrReleased, even if another guard of the same acquisition still holds the lock. The same methods
// of a nil guard return ErrBadOption.
func TestGuard_ReleasedOrNil_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a", distlock.Lease(time.Hour))
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
					return g.InTransaction(t.Context(), func(context.Context) error {
						t.Error("called without the lock")
						return nil
					})
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

// If the logger panics during TryLock, the panic reaches the caller, and the lock is released
// later. If the logger panics during Close, Close still releases all locks.
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
		kept := p.MustTry("kept")
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
		for i := 0; i < 100 && w.Lock("a").Held; i++ {
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
