package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// turnLimit bounds how long a waiter may wait for what should come at once or within an interval.
const turnLimit = 60 * time.Second

// A turn is what a call of Lock in the background came to.
type turn struct {
	guard *distlock.TryGuard
	err   error
	after time.Duration
}

var labels atomic.Int64 // of waiters

// queue calls Lock in the background and returns when the caller stands in the line. The call ends
// with the test.
func (w *world) queue(t testing.TB, m *distlock.Manager, name string, opts ...distlock.Option,
) <-chan turn {
	t.Helper()
	return w.queueCtx(t, t.Context(), m, name, opts...)
}

func (w *world) queueCtx(t testing.TB, ctx context.Context, m *distlock.Manager, name string,
	opts ...distlock.Option) <-chan turn {
	t.Helper()
	label := fmt.Sprintf("waiter-%d", labels.Add(1))
	done := make(chan turn, 1)
	begun := time.Now()
	go func() { // ends with ctx
		g, err := m.Lock(name).Lock(ctx, append(slices.Clip(opts), distlock.Label(label))...)
		w.keep(g)
		done <- turn{g, err, time.Since(begun)}
	}()
	eventually(t, turnLimit, "it stands in the line of "+name, func() bool {
		return slices.ContainsFunc(w.lock(t, name).Waiters, func(p catalog.Participant) bool {
			return strings.Contains(p.Who, ":"+label+":")
		})
	})
	return done
}

// wantTurn waits for the turn of a waiter.
func wantTurn(t testing.TB, done <-chan turn) *distlock.TryGuard {
	t.Helper()
	got := wantEnd(t, done)
	if got.err != nil {
		t.Fatalf("Lock: %v", got.err)
	}
	return got.guard
}

// wantEnd waits for the end of a call of Lock, whatever it came to.
func wantEnd(t testing.TB, done <-chan turn) turn {
	t.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(turnLimit):
		t.Fatalf("it still waits after %v", turnLimit)
	}
	return turn{}
}

func wantWaiting(t testing.TB, done <-chan turn) {
	t.Helper()
	select {
	case got := <-done:
		t.Fatalf("it does not wait: %v, %v", got.guard, got.err)
	default:
	}
}

func wantReleased(t testing.TB, guards ...*distlock.TryGuard) {
	t.Helper()
	for _, g := range guards {
		if err := g.Release(); err != nil {
			t.Fatalf("Release of %q: %v", g.Name(), err)
		}
	}
}

// First come, first served, over processes and inside them: twelve waiters of three processes have
// their turns in the order in which they came, one at a time, with fences that rise.
func TestLock_TwelveWaitersOfThreeProcesses_FirstComeFirstServed(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		managers := []*distlock.Manager{w.start(t, calm), w.start(t, calm), w.start(t, calm)}
		first := w.mustTry(t, managers[0], name)
		var inside atomic.Int32
		var mu sync.Mutex // guards order and fences
		var order []int
		fences := []int64{first.Fence()}
		var turns sync.WaitGroup
		for i := range 12 {
			done := w.queue(t, managers[i*7%3], name)
			turns.Go(func() {
				got := <-done
				if got.err != nil {
					t.Errorf("waiter %d: %v", i, got.err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				mu.Lock()
				order, fences = append(order, i), append(fences, got.guard.Fence())
				mu.Unlock()
				if err := got.guard.Verify(t.Context()); err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
				inside.Add(-1)
				if err := got.guard.Release(); err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
		}
		wantReleased(t, first)
		turns.Wait()
		if len(order) != 12 || !slices.IsSorted(order) {
			t.Errorf("the turns were had in the order %v", order)
		}
		if !slices.IsSorted(fences) || len(slices.Compact(fences)) != 13 {
			t.Errorf("the fences do not rise: %v", fences)
		}
		if l := w.lock(t, name); l.Held || len(l.Waiters) != 0 {
			t.Errorf("in the end: %+v", l)
		}
	})
}

// Who gives up leaves the line, by its bound, its context or the closing of its process, and those
// behind it keep their order.
func TestLock_WaitersGiveUp_OthersKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder, m := w.start(t, calm), w.start(t, calm)
		closes := w.startUnclosed(t, calm)
		g := w.mustTry(t, holder, name)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cancelled := w.queueCtx(t, ctx, m, name)
		shut := w.queue(t, closes, name)
		bounded := w.queue(t, m, name, distlock.WaitAtMost(paced(3*time.Second)))
		one, two := w.queue(t, m, name), w.queue(t, holder, name)
		cancel()
		wantErr(t, wantEnd(t, cancelled).err, context.Canceled)
		closeManager(t, closes)
		wantErr(t, wantEnd(t, shut).err, distlock.ErrClosed)
		h := heldError(t, wantEnd(t, bounded).err)
		if h.Process != holder.Process() {
			t.Errorf("told that %q holds it, want %q", h.Process, holder.Process())
		}
		eventually(t, turnLimit, "only two are left in the line", func() bool {
			return len(w.lock(t, name).Waiters) == 2
		})
		wantReleased(t, g)
		g = wantTurn(t, one)
		wantWaiting(t, two)
		wantReleased(t, g)
		wantReleased(t, wantTurn(t, two))
	})
}

// A TryLock overtakes nobody who waits, on any server.
func TestTryLock_OthersWait_OvertakesNobody(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		a, b, c := w.start(t, calm), w.start(t, calm), w.start(t, calm)
		g := w.mustTry(t, a, name)
		for range 10 {
			next := w.queue(t, b, name)
			stop := make(chan struct{})
			var trying sync.WaitGroup
			trying.Go(func() {
				for !closed(stop) {
					stolen, err := c.Lock(name).TryLock(t.Context())
					if err == nil {
						w.keep(stolen)
						t.Error("TryLock overtook the line")
						return
					}
					select {
					case <-time.After(time.Millisecond): // leave something to the others
					case <-stop:
					}
				}
			})
			wantReleased(t, g)
			g = wantTurn(t, next)
			close(stop)
			trying.Wait()
		}
		wantReleased(t, g)
	})
}

// Two processes hold one lock each and wait for the other's: exactly the one that came last is
// told, with the circle in words; the other has its turn.
func TestDeadlock_TwoProcesses_OneIsTold(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		one, two := w.name("one"), w.name("two")
		a, b := w.start(t, calm), w.start(t, calm)
		ga, gb := w.mustTry(t, a, one), w.mustTry(t, b, two)
		older := w.queue(t, a, two, distlock.Why("wants two"), distlock.Holding(ga))
		begun := time.Now()
		_, err := b.Lock(one).Lock(gb.Context(), distlock.Why("wants one"),
			distlock.WaitAtMost(turnLimit))
		took := time.Since(begun)
		wantErr(t, err, distlock.ErrDeadlock)
		for _, part := range []string{a.Process(), b.Process(), one, two, "wants one", "wants two"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not name %s: %v", part, err)
			}
		}
		if took < time.Second {
			t.Errorf("told after %v, before a second was over", took)
		}
		t.Logf("told after %v", took)
		wantWaiting(t, older)
		if err := gb.Err(); err != nil {
			t.Errorf("what the one that was told holds: %v", err)
		}
		wantReleased(t, gb)
		wantReleased(t, wantTurn(t, older), ga)
	})
}
