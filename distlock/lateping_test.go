package distlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A latePings simulates a network that loses pings. It can deliver the lost pings later.
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

func (l *latePings) silence(d time.Duration) {
	l.mu.Lock()
	l.silent = true
	l.mu.Unlock()
	time.Sleep(d)
	l.mu.Lock()
	l.silent = false
	l.mu.Unlock()
}

// deliver sends the lost pings to the server in reverse order, and returns their number.
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

// startLate starts a process that pings every 5 s through a network of its own.
func (w *world) startLate() (*proc, *latePings) {
	network := &latePings{}
	p := w.start(func(c *distlock.Config) {
		network.Catalog, c.Catalog = c.Catalog, network
		c.Ping = 5 * time.Second
	})
	return p, network
}

// If a network loses pings for 14 s, the guard stays valid. It also stays valid if the server
// applies these pings later, even an hour later.
func TestGuard_LostPingsAppliedLate_KeepsTheLock(t *testing.T) { // D1, D4, I7
	for name, later := range map[string]time.Duration{
		"as soon as it heals": 0, "after the next ten pings": 51 * time.Second,
		"after 10 min": 10 * time.Minute, "after an hour": time.Hour,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, network := w.startLate()
			g := p.MustTry("a")
			network.silence(14 * time.Second)
			time.Sleep(later)
			if n := network.deliver(); n < 2 {
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

// If two processes share one process id and one session, the process that pings second loses its
// guard. When that process releases the guard or closes, the other process keeps the lock.
func TestGuard_TwinPingedFirst_LeavesTheLockToIt(t *testing.T) { // A12, H2
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		lost, closed := p.MustTry("a"), p.MustTry("b")
		twin := catalog.Heartbeat{Process: p.Process(), Seq: 1000, Takeover: takeoverTime,
			Interval: pingTime}
		assert.Value(w.Mem.Ping(t.Context(), twin))(t)
		time.Sleep(2 * pingTime)
		wantErr(t, lost.Err(), distlock.ErrLockLost)
		wantErr(t, lost.Err(), catalog.ErrTwin)
		wantErr(t, lost.Release(), distlock.ErrLockLost)
		wantErr(t, closed.Err(), distlock.ErrLockLost)
		assert.NoErr(t, p.Close(t.Context()))
		for _, g := range []*distlock.TryGuard{lost, closed} {
			_, err := other.Try(g.Name())
			if h := held(t, err); h.Process != twin.Process {
				t.Errorf("%q is held by %s, want its twin", g.Name(), h.Process)
			}
		}
		if w.Mem.Document(catalog.PingsCollection, twin.Process) == nil {
			t.Error("the twin's ping was removed")
		}
	})
}

// While an acquisition waits for its reply, the process does not treat the new session as abandoned
// and does not release it.
func TestReap_AcquisitionUnderWay_IsNoGhost(t *testing.T) { // I6
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(fault.On(fault.Acquire, func(apply func() error) error {
			defer time.Sleep(commandTimeout - time.Second) // makes the reply slow
			return apply()
		}))
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
