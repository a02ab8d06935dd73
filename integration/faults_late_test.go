package integration_test

import (
	"errors"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// D3: pings arrive and their replies do not. Nobody takes over, for the pings are seen; the holder
// loses its lock at its deadline all the same, and not before. After healing no lock is stuck.
func TestFaults_PingRepliesLost_LostAtTheDeadline_NotTakenOver(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		name, line := w.name("balancer"), newWire(t, w.d.through(t).target)
		m := w.onWire(t, line, shortTakeover)
		contender := w.start(t, shortTakeover)
		g := w.mustTry(t, m, name)
		seq := func() int64 {
			return w.document(t, catalog.PingsCollection, g.Process()).Lookup("seq").Int64()
		}
		line.set(func(op string) mishap {
			if op == "ping" {
				return replyLost
			}
			return delivered
		})
		before := seq()
		eventually(t, 30*time.Second, "the guard is lost", func() bool { return g.Err() != nil })
		if at := time.Now(); at.Before(g.Deadline()) {
			t.Errorf("lost at %v, before its deadline %v", at, g.Deadline())
		}
		wantErr(t, g.Err(), distlock.ErrLockLost)
		hits := line.hit("ping")
		eventually(t, 30*time.Second, "pings go on arriving", func() bool {
			_, err := w.try(t, contender, name)
			heldError(t, err)
			return line.hit("ping") > hits+10
		})
		if now := seq(); now < before+10 {
			t.Errorf("seq went from %d to %d: the pings were not applied", before, now)
		}
		injected.add(w.d.name, "replies lost for good", "ping")
		line.set(nil)
		wantErr(t, g.Release(), distlock.ErrLockLost)
		if free := w.wait(t, contender, name); free.TakeoverEvidence() != "" || free.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d, taken over %q", free.Fence(), g.Fence(), free.TakeoverEvidence())
		}
	})
}

// D1, D4, I7: tries to break "a ping that is lost costs no lock, whenever it is carried out", with
// the bytes of real connections. The first pings are held back until others have come after them,
// or until the process has closed; then they arrive.
func TestFaults_PingsAppliedLate_CostNoLock(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		name, line := w.name("balancer"), newWire(t, w.d.through(t).target)
		m := w.onWire(t, line, nil)
		g := w.mustTry(t, m, name)
		lose := func() {
			t.Helper()
			hits := line.hit("ping")
			line.set(func(op string) mishap {
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
			line.set(nil)
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

// I3: an acquire is applied long after its caller has given up and has looked in vain. It is found
// as a ghost and freed.
func TestFaults_AcquireAppliedLate_IsFreed(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		name, line := w.name("balancer"), newWire(t, w.d.through(t).target)
		m := w.onWire(t, line, nil)
		last := w.mustTry(t, m, name).Fence()
		w.release(t, name)
		line.first("acquire", held)
		g, err := w.try(t, m, name)
		wantNoGuard(t, g, err)
		if line.hit("acquire") != 1 || w.lock(t, name).Fence != last {
			t.Errorf("the acquire was not held back: %+v", w.lock(t, name))
		}
		line.letGo()
		eventually(t, freeLimit, "the acquire has been applied, and the lock is free", func() bool {
			l := w.lock(t, name)
			return l.Fence == last+1 && !l.Held
		})
		if beat := m.Stats(); beat.Ghosts+beat.Late == 0 {
			t.Errorf("freed, and not by the heartbeat: %+v", beat)
		}
		injected.add(w.d.name, "applied late", "acquire")
		if next := w.wait(t, m, name); next.Fence() <= last {
			t.Errorf("fence %d after %d", next.Fence(), last)
		}
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
