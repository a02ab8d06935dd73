package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/fault"
)

// sluggish lets each command of a process take as long as it does on a slow server.
func (p *proc) sluggish(seed uint64) *proc {
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(seed, 1))
	p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == fault.Notice {
			return apply()
		}
		mu.Lock()
		there, back := 200+chance.Int64N(201), 200+chance.Int64N(201)
		mu.Unlock()
		time.Sleep(time.Duration(there) * time.Millisecond)
		defer time.Sleep(time.Duration(back) * time.Millisecond)
		return apply()
	})
	return p
}

// wake makes processes quick again, and lets the commands end that are under way.
func (w *world) wake(procs ...*proc) {
	for _, p := range procs {
		p.store.Set(nil)
	}
	time.Sleep(2 * time.Second)
}

// resolveSlowly is resolve where a release takes its time: callers release side by side.
func (w *world) resolveSlowly(callers []*caller) (told int, last time.Duration) {
	w.t.Helper()
	start := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range callers {
		wg.Go(func() {
			for _, wait := range c.waits {
				got := <-wait
				switch {
				case got.guard != nil:
					wg.Go(func() { _ = got.guard.Release() })
				case errors.Is(got.err, distlock.ErrDeadlock):
					mu.Lock()
					told, last = told+1, time.Since(start)
					mu.Unlock()
				default:
					w.t.Errorf("error is %v", got.err)
				}
			}
			_ = c.holds.Release()
		})
	}
	wg.Wait()
	return told, last
}

// Tries to break: callers that wait for one another are told within five seconds on a server that
// takes 400 to 800 ms for each command.
func TestDeadlock_SlowServer_IsToldWithinFiveSeconds(t *testing.T) {
	for _, n := range []int{2, 5, 40} {
		for _, processes := range []int{1, 3, n} {
			for shape, build := range map[string]func(w *world, n int, of func(i int) *proc) []*caller{
				"ring": ring, "star": star, "pairs": pairs,
			} {
				t.Run(fmt.Sprintf("%s of %d in %d", shape, n, processes), func(t *testing.T) {
					inBubble(t, func(t *testing.T, w *world) {
						procs := make([]*proc, processes)
						for i := range procs {
							procs[i] = w.start(nil)
						}
						callers := build(w, n, func(i int) *proc { return procs[i%processes] })
						for i, p := range procs {
							p.sluggish(uint64(i))
						}
						told, last := w.resolveSlowly(callers)
						w.wake(procs...)
						t.Logf("%d told within %v", told, last)
						if last > toldAtMost {
							t.Errorf("the last was told after %v, want at most %v", last, toldAtMost)
						}
					})
				})
			}
		}
	}
}

// The same with two who wait outside of full lines, in different processes.
func TestDeadlock_SlowServer_OutsidersAreTold(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b, l := w.start(nil), w.start(nil), w.start(nil)
				ga, gb := a.mustTry("a"), b.mustTry("b")
				w.fill(l, "a")
				w.fill(l, "b")
				a.sluggish(2 * seed)
				b.sluggish(2*seed + 1)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				first := a.queueCtx(ctx, "b", distlock.Holding(ga))
				time.Sleep(time.Duration(seed) * 300 * time.Millisecond)
				second := b.queueCtx(ctx, "a", distlock.Holding(gb))
				start := time.Now()
				select {
				case got := <-first:
					wantDeadlock(t, got.err)
				case got := <-second:
					wantDeadlock(t, got.err)
				case <-time.After(time.Hour):
					t.Fatal("nobody is told")
				}
				took := time.Since(start)
				w.wake(a, b)
				t.Logf("told after %v", took)
				if took > toldAtMost+toldAtMost/2 { // most are told within five seconds
					t.Errorf("told after %v", took)
				}
			})
		})
	}
}
