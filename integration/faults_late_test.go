package integration_test

import (
	"errors"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// D1, D4, I7: tries to break "a ping that is lost costs no lock, whenever it is carried out", with
// the bytes of real connections. The first pings are held back until others have come after them,
// or until the process has closed; then they arrive.
func TestFaults_PingsAppliedLate_CostNoLock(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		name, line := w.name("balancer"), w.d.through(t)
		m := w.onWire(t, line, nil)
		g := w.mustTry(t, m, name)
		lose := func() {
			t.Helper()
			hits := line.hit("ping")
			line.befall(func(op string) mishap {
				if op == "ping" {
					return held
				}
				return delivered
			})
			eventually(t, 30*time.Second, "two pings are held back", func() bool {
				return line.hit("ping") >= hits+2
			})
		}
		good := func(n int64) {
			t.Helper()
			line.befall(nil)
			before := m.Stats().Pings
			eventually(t, 30*time.Second, "pings go on", func() bool {
				return m.Stats().Pings >= before+n
			})
		}
		lose()
		good(5)
		line.letGo()
		good(3)
		if beat := m.Stats(); beat.Processes != 0 || beat.Failures < 2 {
			t.Errorf("%+v: want lost pings, and the same session", beat)
		}
		if err := errors.Join(g.Err(), g.Verify(t.Context()), g.Release()); err != nil {
			t.Error(err)
		}
		lose()
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if w.document(t, catalog.PingsCollection, g.Process()) != nil {
			t.Error("the ping is there after Close")
		}
		line.letGo() // shows besides that what is held back does arrive
		eventually(t, 30*time.Second, "the late ping is carried out", func() bool {
			return w.document(t, catalog.PingsCollection, g.Process()) != nil
		})
		if l := w.lock(t, name); l.Held {
			t.Errorf("the lock: %+v", l)
		}
		injected.add(w.d.name, "applied late", "ping")
	})
}

// plantCondemned plants a lock that may be taken over at once.
func (w *world) plantCondemned(t testing.TB) dead {
	t.Helper()
	return w.plantHeld(t, append(w.pinged(t, time.Hour), condemnedMark))
}

var condemnedMark = field("condemned", map[string]string{"by": "a contender that died"})

// release releases the guard of that name that was acquired last.
func (w *world) release(t testing.TB, name string) {
	t.Helper()
	w.mu.Lock()
	var last *distlock.TryGuard
	for _, g := range w.kept {
		if g != nil && g.Name() == name {
			last = g
		}
	}
	w.mu.Unlock()
	if err := last.Release(); err != nil {
		t.Fatal(err)
	}
}

// wantGuard checks that a guard and the document agree.
func (w *world) wantGuard(t testing.TB, m *distlock.Manager, g *distlock.TryGuard, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	l := w.lock(t, g.Name())
	if !l.Held || l.TS != g.Session() || l.Fence != g.Fence() || l.Process != m.Process() {
		t.Errorf("the guard is %v, fence %d; the document shows %+v", g.Session(), g.Fence(), l)
	}
	if err := errors.Join(g.Err(), g.Verify(t.Context()), g.Release()); err != nil {
		t.Error(err)
	}
}

// wantNoGuard checks that an acquisition failed with an error that says what is known.
func wantNoGuard(t testing.TB, g *distlock.TryGuard, err error) {
	t.Helper()
	if g != nil || err == nil {
		t.Fatalf("a guard (%v) or no error: %v", g, err)
	}
	if !errors.Is(err, distlock.ErrOutcomeUnknown) && !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("%v: want ErrOutcomeUnknown or ErrUnavailable", err)
	}
}

// wantFreed waits until nobody holds a lock.
func (w *world) wantFreed(t testing.TB, name string) {
	t.Helper()
	eventually(t, freeLimit, "the lock is free", func() bool {
		raw := w.document(t, catalog.LocksCollection, name)
		return raw == nil || !w.lock(t, name).Held
	})
}
