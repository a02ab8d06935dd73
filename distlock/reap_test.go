package distlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// While an acquisition waits for its reply, the process does not treat the new session as abandoned
// and does not release it.
func TestReap_AcquisitionUnderWay_IsNoGhost(t *testing.T) { // I6
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(fault.Slow(0, commandTimeout-time.Second, fault.Acquire))
		reads := p.Store.Count(fault.Held)
		for i := 0; p.Store.Count(fault.Held) < reads+2; i++ {
			if i > 100 {
				t.Fatal("the reaper reads too rarely")
			}
			g := p.MustTry("a")
			assert.NoErr(t, g.Verify(t.Context()), "after a slow reply")
			w.release(g)
		}
		assert.Equal(t, p.Stats().Ghosts, 0, "%d ghosts, want %d")
	})
}

// While a release waits for its reply, the process does not count the session as abandoned.
func TestReap_ReleaseUnderWayDuringItsRead_IsNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		w.start(nil).MustTry("a")
		p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch call.Op {
			case fault.Release: // slow on the way to the server
				time.Sleep(3 * time.Second)
			case fault.Held: // slow on the way back
				defer time.Sleep(4 * time.Second)
			}
			return apply()
		})
		for range 200 { // callers that continually give up
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, _ = p.Lock("a").Lock(ctx)
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		assert.Equal(t, p.Stats().Ghosts, 0, "%d ghosts, want %d")
	})
}

// If a late copy of an enter command acquires the lock again after the lock was released, Close
// releases the lock.
func TestClose_EnterAppliedLate_IsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		var late func() error
		p.Store.Set(fault.On(fault.Enter, func(apply func() error) error {
			if late == nil {
				late = apply
				return fault.Lost(fault.Enter)
			}
			return apply()
		}))
		w.release(w.wantTurn(p.queue("a")))
		assert.Must(t, late())
		if !w.Lock("a").Held {
			t.Fatal("the late copy acquired nothing: the test proves nothing")
		}
		assert.NoErr(t, p.Close(t.Context()))
		w.wantFree("a")
	})
}

// tryLate makes a ghost: a try has an unknown outcome, and its command is applied later. Meanwhile
// releases take the given time and fail.
func (p *proc) tryLate(t *testing.T, release time.Duration) {
	t.Helper()
	p.Store.Set(func(_ context.Context, c fault.Call, apply func() error) error {
		switch c.Op {
		case fault.Acquire:
			go func() {
				time.Sleep(50 * time.Millisecond)
				_ = apply()
			}()
			return fault.Lost(c.Op)
		case fault.Release:
			time.Sleep(release)
			return fault.Refused(c.Op)
		}
		return apply()
	})
	wantErr(t, assert.Err(p.Try("a")), distlock.ErrOutcomeUnknown)
}

// Close does not return nil if the lock of a ghost stays held. Here the term ends while Close tries
// to release the lock.
func TestClose_TermEndsDuringTheReleaseOfAGhost_IsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(func(c *distlock.Config) {
			c.Ping, c.Takeover, c.Margin = time.Second, 5*time.Second, time.Second
		})
		p.tryLate(t, 4500*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		if err := p.Close(t.Context()); err == nil || !w.Lock("a").Held {
			t.Errorf("Close returned %v, the lock is held: %t", err, w.Lock("a").Held)
		}
	})
}

// Close releases a ghost that was found in an earlier term. Otherwise a held lock without a ping
// document would remain, which processes that live for seconds never take over.
func TestClose_GhostOfAnEarlierTerm_IsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.tryLate(t, 0)
		time.Sleep(2 * pingTime)
		if p.Stats().Ghosts == 0 {
			t.Fatal("the reaper has found no ghost: the test proves nothing")
		}
		p.kill()
		time.Sleep(holdTime + time.Minute)
		p.Heal()
		assert.NoErr(t, p.Close(t.Context()))
		w.wantFree("a")
		if w.Mem.Document(catalog.PingsCollection, p.Process()) != nil {
			t.Error("the ping document remains")
		}
	})
}

// Close releases a ghost that was found in an earlier term, even if a release of the ghost was in
// progress when the present term began.
func TestClose_ReleaseOfAGhostOutlivesATerm_IsReleased(t *testing.T) {
	var hits atomic.Int32 // the times of the pings are random
	play := func(t *testing.T, w *world) {
		p := w.start(func(c *distlock.Config) {
			c.Ping, c.Takeover, c.Margin = time.Second, 5*time.Second, time.Second
		})
		began, first := time.Now(), true
		p.Store.Set(func(_ context.Context, c fault.Call, apply func() error) error {
			switch at := time.Since(began); {
			case c.Op == fault.Acquire:
				go func() {
					time.Sleep(50 * time.Millisecond)
					_ = apply()
				}()
				return fault.Lost(c.Op)
			case c.Op == fault.Release && first:
				first = false
				time.Sleep(4900 * time.Millisecond)
				return fault.Refused(c.Op)
			case c.Op == fault.Ping && at > 1500*time.Millisecond && at < 5200*time.Millisecond:
				return fault.Refused(c.Op)
			}
			return apply()
		})
		wantErr(t, assert.Err(p.Try("a")), distlock.ErrOutcomeUnknown)
		time.Sleep(6 * time.Second)
		if p.Stats().TrustedFor > 0 && p.Stats().Unreleased > 0 {
			hits.Add(1)
		}
		assert.NoErr(t, p.Close(t.Context()))
		w.wantFree("a")
	}
	t.Cleanup(func() {
		if hits.Load() == 0 {
			t.Error("no release outlived a term: the test proves nothing")
		}
	})
	for n := range 10 {
		runInBubble(t, fmt.Sprint(n), play)
	}
}
