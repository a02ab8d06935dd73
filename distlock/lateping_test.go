package distlock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
)

// latePings simulates a silent network. The pings that it swallows stay pending until the test
// delivers them, after their callers have returned.
type latePings struct {
	catalog.Catalog
	mu     sync.Mutex // guards the fields below
	silent bool
	under  []catalog.Heartbeat // pending pings
}

func (l *latePings) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	l.mu.Lock()
	silent := l.silent
	if silent {
		l.under = append(l.under, b)
	}
	l.mu.Unlock()
	if silent {
		<-ctx.Done()
		return catalog.Pinged{}, fault.Lost(fault.Ping)
	}
	return l.Catalog.Ping(ctx, b)
}

// silence swallows all pings for the duration d.
func (l *latePings) silence(d time.Duration) {
	l.mu.Lock()
	l.silent = true
	l.mu.Unlock()
	time.Sleep(d)
	l.mu.Lock()
	l.silent = false
	l.mu.Unlock()
}

// deliver applies the pending pings in reverse order and returns their number.
func (l *latePings) deliver() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range slices.Backward(l.under) {
		_, _ = l.Catalog.Ping(context.Background(), b) // the reply is lost
	}
	n := len(l.under)
	l.under = nil
	return n
}

// startLate starts a process that pings every 5 s over a latePings network.
func (w *world) startLate() (*proc, *latePings) {
	line := &latePings{}
	p := w.start(func(c *distlock.Config) {
		line.Catalog, c.Catalog = c.Catalog, line
		c.Ping = 5 * time.Second
	})
	return p, line
}

// D1, D4, I7: no guard is lost if pings are lost for 14 s and applied later: immediately, after the
// next ten pings, after ten minutes or after an hour.
func TestGuard_LostPingsAppliedLate_KeepsTheLock(t *testing.T) {
	for name, later := range map[string]time.Duration{
		"as soon as it heals": 0, "after the next ten pings": 51 * time.Second,
		"after 10 min": 10 * time.Minute, "after an hour": time.Hour,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, line := w.startLate()
			g := p.mustTry("a")
			line.silence(14 * time.Second)
			time.Sleep(later)
			if n := line.deliver(); n < 2 {
				t.Fatalf("%d pings were lost, want some", n)
			}
			time.Sleep(time.Minute)
			assert.NoErr(t, g.Err(), "the guard")
			if beat := p.Stats(); beat.Processes != 0 {
				t.Errorf("%d process ids were given up", beat.Processes)
			}
			assert.NoErr(t, g.Release())
		})
	}
}

// A late ping of an abandoned process id or of a closed process does not affect later sessions.
func TestGuard_PingOfAnOldIDAppliedLate_TouchesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, line := w.startLate()
		lost := p.mustTry("a")
		line.silence(14 * time.Second)
		ping, bad := catalog.ParsePing(w.mem.Document(catalog.PingsCollection, lost.Process()))
		if bad != nil {
			t.Fatal(bad)
		}
		judge := catalog.Condemnation{By: "judge", Evidence: "on purpose"}
		assert.Must(t, catalogtest.On(w.mem).Condemn(t.Context(), lost.Process(), &ping, judge))
		time.Sleep(time.Minute)
		wantErr(t, lost.Err(), distlock.ErrLockLost)
		_ = lost.Release()
		g := p.mustTry("a")
		line.silence(14 * time.Second)
		line.deliver()
		time.Sleep(time.Minute)
		if err := g.Err(); err != nil || g.Process() == lost.Process() {
			t.Errorf("the guard of %s: %v", g.Process(), err)
		}
		assert.Equal(t, p.Stats().Processes, 1, "%d process ids were given up, want %d")
	})
}

// A ping that is applied after Close creates a ping document, but no lock. Another process acquires
// the lock immediately, and the document is pruned like others.
func TestClose_PingAppliedLate_HoldsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, line := w.startLate()
		other := w.start(nil)
		p.mustTry("a")
		line.silence(14 * time.Second)
		id := p.Process()
		time.Sleep(time.Minute)
		assert.Must(t, p.Close(t.Context()))
		line.deliver()
		if w.mem.Document(catalog.PingsCollection, id) == nil {
			t.Fatal("no late ping was carried out")
		}
		assert.NoErr(t, assert.Err(other.try("a")), "the lock after Close")
		time.Sleep(5 * 24 * time.Hour)
		synctest.Wait()
		if raw := w.mem.Document(catalog.PingsCollection, id); raw != nil {
			t.Errorf("not pruned: %v", raw)
		}
	})
}

// A12, H2: if two processes share one id and one session, the second to ping loses its guard.
// Neither its release nor its Close frees the lock of the first.
func TestGuard_TwinPingedFirst_LeavesTheLockToIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		lost, closed := p.mustTry("a"), p.mustTry("b")
		twin := catalog.Heartbeat{Process: p.Process(), Seq: 1000, Takeover: takeoverTime,
			Interval: pingTime}
		assert.Value(w.mem.Ping(t.Context(), twin))(t)
		time.Sleep(2 * pingTime)
		wantErr(t, lost.Err(), distlock.ErrLockLost)
		wantErr(t, lost.Err(), catalog.ErrTwin)
		wantErr(t, lost.Release(), distlock.ErrLockLost)
		wantErr(t, closed.Err(), distlock.ErrLockLost)
		assert.NoErr(t, p.Close(t.Context()))
		for _, g := range []*distlock.TryGuard{lost, closed} {
			_, err := other.try(g.Name())
			if h := held(t, err); h.Process != twin.Process {
				t.Errorf("%q is held by %s, want its twin", g.Name(), h.Process)
			}
		}
		if w.mem.Document(catalog.PingsCollection, twin.Process) == nil {
			t.Error("the twin's ping is gone")
		}
	})
}

// A waiter's entering command may be applied after its caller has returned. Then the queue entry
// lasts at most a ping interval and delays no waiter behind it.
func TestLock_EntersAfterGivingUp_LeavesTheLineWithinAPing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		var late func() error
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter && late == nil {
				late = apply // pending when the connection breaks
				return fault.Lost(call.Op)
			}
			if call.Op == fault.Enter {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		got := <-b.queue("a", distlock.WaitAtMost(3*time.Second))
		if got.err == nil || late == nil {
			t.Fatalf("Lock: %v, %v", got.guard, got.err)
		}
		time.Sleep(10 * pingTime) // longer than all immediate retries
		b.store.Set(nil)
		assert.Must(t, late())
		next := c.queue("a")
		assert.MustEqual(t, len(w.lock("a").Waiters), 2, "%d wait, want the ghost and the next (%d)")
		time.Sleep(pingTime * 12 / 10)
		synctest.Wait()
		assert.Equal(t, len(w.lock("a").Waiters), 1, "%d wait after a ping, want only the next (%d)")
		if s := b.Stats(); s.Ghosts != 1 {
			t.Errorf("%d ghosts counted, want 1", s.Ghosts)
		}
		w.release(g)
		w.release(w.wantTurn(next))
	})
}

// A lock that is released late during the reaper's read is no ghost. The release is reported once,
// without a warning.
func TestReap_ReleasedDuringItsRead_IsNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.mustTry("a")
		var taken atomic.Bool // set once the server has acquired the lock
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Release && !taken.Load():
				return fault.Refused(call.Op)
			case call.Op == fault.Release:
				time.Sleep(100 * time.Millisecond)
			case call.Op == fault.Held:
				defer time.Sleep(time.Second) // makes the reply slow
			}
			return apply()
		})
		wantErr(t, g.Release(), distlock.ErrReleaseFailed)
		synctest.Wait() // until the first late try is over
		taken.Store(true)
		d.take()
		time.Sleep(3 * pingTime)
		synctest.Wait()
		late := 0
		for _, e := range d.take() {
			if e.Kind == distlock.EventReleasedLate {
				late++
			}
		}
		if s := p.Stats(); late != 1 || s.Late != 1 || s.Ghosts != 0 || w.lock("a").Held {
			t.Errorf("told %d times, %d late releases, %d ghosts, held: %v", late, s.Late, s.Ghosts,
				w.lock("a").Held)
		}
		p.store.Set(nil)
		time.Sleep(2 * time.Second) // until pending replies have arrived
	})
}

// I6: a session is no ghost if its acquisition is pending during the reaper's read. Its lock stays
// held, and its guard is valid.
func TestReap_AcquisitionUnderWay_IsNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.store.Set(fault.On(fault.Acquire, func(apply func() error) error {
			defer time.Sleep(commandTimeout - time.Second) // makes the reply slow
			return apply()
		}))
		reads := p.store.Count(fault.Held)
		for i := 0; p.store.Count(fault.Held) < reads+2; i++ {
			if i > 100 {
				t.Fatal("the reaper reads too rarely")
			}
			g := p.mustTry("a")
			assert.NoErr(t, g.Verify(t.Context()), "after a slow reply")
			w.release(g)
		}
		assert.Equal(t, p.Stats().Ghosts, 0, "%d ghosts, want %d")
	})
}
