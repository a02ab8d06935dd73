package distlock_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// If a holder pings again just before a contender condemns it, the contender's write matches
// nothing. The lock document does not change.
func TestTryLock_HolderRecoversBeforeTheCondemning_IsLeftAlone(t *testing.T) { // B5
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		old := a.MustTry("a")
		before := w.Document("a")
		a.kill()
		var stopped, goesOn atomic.Bool // the command may outlive its caller
		b.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Condemn && stopped.CompareAndSwap(false, true):
				a.Store.Set(nil)
				time.Sleep(10 * time.Minute)
				goesOn.Store(true)
			case stopped.Load() && !goesOn.Load():
				return fault.Refused(call.Op)
			}
			return apply()
		})
		for start := time.Now(); !stopped.Load() &&
			time.Since(start) < 2*takeoverTime; time.Sleep(10 * time.Second) {
			if err := assert.Err(b.Try("a")); !stopped.Load() {
				wantErr(t, err, distlock.ErrHeld)
			}
		}
		time.Sleep(11 * time.Minute)
		if !stopped.Load() || !bytes.Equal(before, w.Document("a")) {
			t.Errorf("stopped: %v, document %v", stopped.Load(), w.Document("a"))
		}
		wantErr(t, old.Err(), distlock.ErrLockLost) // its deadline had passed before
		if a.Stats().Processes != 0 {
			t.Error("the holder took a new process id")
		}
	})
}

// New returns an error if the client or the context is missing, or if the context has expired.
func TestNew_NothingToWorkWith_IsAnError(t *testing.T) { // G8
	inBubble(t, func(t *testing.T, w *world) {
		_, err := distlock.New(t.Context(), distlock.Config{})
		wantErr(t, err, distlock.ErrConfig)
		var none context.Context
		_, err = distlock.New(none, distlock.Config{Catalog: w.Mem})
		wantErr(t, err, distlock.ErrBadOption)
		past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		_, err = distlock.New(past, distlock.Config{Catalog: w.Mem})
		wantErr(t, err, context.DeadlineExceeded)
		_, err = w.start(nil).Lock("a").TryLock(past)
		wantErr(t, err, context.DeadlineExceeded)
	})
}

// If the server's reply to a write contradicts the lock document, TryLock repeats the write. It
// gives up after a bounded number of tries.
func TestTryLock_AnswerDoesNotFitTheDocument_TriesAgain(t *testing.T) { // I10, I11, F22
	for name, c := range map[string]struct {
		op    fault.Op
		err   error
		times int
		got   bool
	}{
		"evict once not matched": {fault.Evict, catalog.ErrNoMatch, 1, true},
		"acquire once not free":  {fault.Acquire, catalog.ErrNotFree, 1, true},
		"acquire never free":     {fault.Acquire, catalog.ErrNotFree, 1 << 30, false},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			if c.op == fault.Evict {
				plantDead(t, w, "a", "dead")
			}
			n := 0
			p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				entering := c.op == fault.Acquire && call.Op == fault.Enter
				if (call.Op == c.op || entering) && n < c.times {
					n++
					return c.err
				}
				return apply()
			})
			_, err := p.Try("a")
			if (err == nil) != c.got || n > 10 {
				t.Errorf("after %d refusals: %v, want a guard: %v", n, err, c.got)
			}
		})
	}
}
