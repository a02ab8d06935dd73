package distlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
)

// toldAtMost is how long after a circle closed it is told, whatever its size.
const toldAtMost = 5 * time.Second

// A caller waits under what it holds.
type caller struct {
	p     *proc
	holds *distlock.TryGuard
	waits []<-chan turn
}

// resolve lets callers be told and go on until nobody waits: who is told of a deadlock releases
// what it holds, and so does who gets what it waits for. It returns how many were told, and when
// the last was.
func (w *world) resolve(callers []*caller) (told int, last time.Duration) {
	w.t.Helper()
	start := time.Now()
	for open := true; open; {
		open = false
		for _, c := range callers {
			for i := 0; i < len(c.waits); i++ {
				synctest.Wait()
				select {
				case got := <-c.waits[i]:
					c.waits = append(c.waits[:i:i], c.waits[i+1:]...)
					i--
					switch {
					case got.guard != nil:
						w.release(got.guard)
					case errors.Is(got.err, distlock.ErrDeadlock):
						told, last = told+1, time.Since(start)
					default:
						w.t.Fatalf("error is %v", got.err)
					}
				default:
				}
			}
			if len(c.waits) == 0 && c.holds != nil {
				w.release(c.holds)
				c.holds = nil
			}
			open = open || len(c.waits) > 0
		}
		if open {
			time.Sleep(50 * time.Millisecond)
		}
		if time.Since(start) > time.Hour {
			w.t.Fatalf("somebody is stuck for an hour; %d were told", told)
		}
	}
	return told, last
}

// Tries to break: any number of callers that wait for one another go on within five seconds,
// whatever shape their waiting has, in one process and in many. Each is told of it once or gets its
// lock.
func TestDeadlock_OfMany_IsToldWithinFiveSeconds(t *testing.T) {
	for _, n := range []int{5, 10, 40, 200} {
		for _, processes := range []int{1, 3, n} {
			for shape, c := range map[string]struct {
				build func(w *world, n int, of func(i int) *proc) []*caller
				told  int
			}{
				"ring": {ring, 1}, "star": {star, 1}, "pairs": {pairs, n / 2}, "all with all": {mesh, 0},
			} {
				if shape == "all with all" && n > 10 || n*processes > 1600 || testing.Short() &&
					(n > 40 || n > 10 && processes == 3) {
					continue
				}
				title := fmt.Sprintf("%s of %d in %d", shape, n, processes)
				runInBubble(t, title, func(t *testing.T, w *world) {
					procs := make([]*proc, processes)
					for i := range procs {
						procs[i] = w.start(nil)
					}
					callers := c.build(w, n, func(i int) *proc { return procs[i%processes] })
					told, last := w.resolve(callers)
					t.Logf("%d of %d told within %v", told, n, last)
					if last > toldAtMost {
						t.Errorf("the last was told after %v, want at most %v", last, toldAtMost)
					}
					if told == 0 || c.told > 0 && told > c.told {
						t.Errorf("%d were told, want %d", told, c.told)
					}
				})
			}
		}
	}
}

// ring is n callers each of whom waits for the next.
func ring(w *world, n int, of func(i int) *proc) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		p := of(i)
		callers[i] = &caller{p: p, holds: p.mustTry(fmt.Sprintf("own %03d", i))}
	}
	for i, c := range callers {
		c.waits = append(c.waits, c.p.queueCtx(c.holds.Context(), fmt.Sprintf("own %03d", (i+1)%n)))
	}
	return callers
}

// star is one who waits for all others to leave a lock that they share, while all wait for it.
func star(w *world, n int, of func(i int) *proc) []*caller {
	hub := &caller{p: of(0), holds: of(0).mustTry("hub")}
	callers := []*caller{hub}
	for i := 1; i < n; i++ {
		p := of(i)
		callers = append(callers, &caller{p: p, holds: p.mustTry("shared", distlock.Shared())})
	}
	hub.waits = append(hub.waits, hub.p.queueCtx(hub.holds.Context(), "shared"))
	for _, c := range callers[1:] {
		c.waits = append(c.waits, c.p.queueCtx(c.holds.Context(), "hub"))
	}
	return callers
}

// pairs are n/2 times two who wait for each other.
func pairs(w *world, n int, of func(i int) *proc) []*caller {
	var callers []*caller
	for i := 0; i+1 < n; i += 2 {
		a, b := of(i), of(i+1)
		one, two := fmt.Sprintf("a %03d", i), fmt.Sprintf("b %03d", i)
		x, y := &caller{p: a, holds: a.mustTry(one)}, &caller{p: b, holds: b.mustTry(two)}
		x.waits = append(x.waits, a.queueCtx(x.holds.Context(), two))
		y.waits = append(y.waits, b.queueCtx(y.holds.Context(), one))
		callers = append(callers, x, y)
	}
	return callers
}

// mesh is n callers each of whom waits for all others at once.
func mesh(w *world, n int, of func(i int) *proc) []*caller {
	callers := make([]*caller, n)
	for i := range callers {
		p := of(i)
		callers[i] = &caller{p: p, holds: p.mustTry(fmt.Sprintf("own %03d", i))}
	}
	for i, c := range callers {
		for j := range callers {
			if j != i {
				c.waits = append(c.waits, c.p.queueCtx(c.holds.Context(), fmt.Sprintf("own %03d", j)))
			}
		}
	}
	return callers
}
