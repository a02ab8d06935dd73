package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// sluggish lets each command of a process take as long as it does on a slow server: 400 to 800 ms.
func (p *proc) sluggish(seed uint64) *proc { return p.taking(seed, 200*time.Millisecond) }

// taking lets each command of a process take so long there, up to twice as long, and back.
func (p *proc) taking(seed uint64, way time.Duration) *proc {
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(seed, 1))
	once := func() time.Duration { return way + time.Duration(chance.Int64N(int64(way)+1)) }
	p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == fault.Notice {
			return apply()
		}
		mu.Lock()
		there, back := once(), once()
		mu.Unlock()
		time.Sleep(there)
		defer time.Sleep(back)
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
				title := fmt.Sprintf("%s of %d in %d", shape, n, processes)
				runInBubble(t, title, func(t *testing.T, w *world) {
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
			}
		}
	}
}

// fillByDead fills the lines of locks with waiters of a process that is cut off from then on: who
// comes within two pings stays outside.
func (w *world) fillByDead(names ...string) {
	w.t.Helper()
	dead := w.start(nil)
	for _, name := range names {
		dead.queue(name)
	}
	dead.kill()
	for _, name := range names {
		one := w.doc(name).Lookup("waiters", "0").Document()
		var line bson.A
		for range catalog.MaxWaiters {
			var party bson.D
			assert.Must(w.t, bson.Unmarshal(one, &party))
			for i := range party {
				if party[i].Key == "ts" {
					party[i].Value = bson.NewObjectID()
				}
			}
			line = append(line, party)
		}
		w.rewrite(name, map[string]any{"waiters": line})
	}
}

// Tries to break: the same where they wait outside of full lines, in different processes, and where
// some of them stand in a line, whoever came first: others know of those outside by their notes.
func TestDeadlock_SlowServer_OutsidersAreTold(t *testing.T) {
	for _, way := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
		for inside := range 2 {
			for seed := range uint64(4) {
				title := fmt.Sprintf("%v, %d inside, %d", way, inside, seed)
				runInBubble(t, title, func(t *testing.T, w *world) {
					a, b := w.start(nil), w.start(nil)
					ga, gb := a.mustTry("a"), b.mustTry("b")
					w.fillByDead([]string{"a", "b"}[inside:]...)
					a.taking(2*seed, way)
					b.taking(2*seed+1, way)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					calls := []func() <-chan turn{
						func() <-chan turn { return a.queueCtx(ctx, "b", distlock.Holding(ga)) },
						func() <-chan turn { return b.queueCtx(ctx, "a", distlock.Holding(gb)) },
					}
					first := calls[seed%2]()
					time.Sleep(time.Duration(seed/2) * (700 * time.Millisecond))
					second := calls[1-seed%2]()
					start := time.Now()
					select {
					case got := <-first:
						wantDeadlock(t, got.err)
						cancel()
						<-second
					case got := <-second:
						wantDeadlock(t, got.err)
						cancel()
						<-first
					case <-time.After(time.Hour):
						t.Fatal("nobody is told")
					}
					took := time.Since(start)
					w.wake(a, b)
					if took > toldAtMost {
						t.Errorf("told after %v, want at most %v", took, toldAtMost)
					}
				})
			}
		}
	}
}
