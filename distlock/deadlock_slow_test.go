package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
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

// Tries to break: a process has more callers outside of full lines than its note has room for, and
// one of them is in a circle with an outsider of another process: one of the two is told within
// five seconds, whichever came first.
func TestDeadlock_MoreOutsidersThanANoteHolds_OneIsTold(t *testing.T) {
	for _, order := range []string{"one many other", "many one other", "many one long ago other"} {
		runInBubble(t, order, func(t *testing.T, w *world) {
			var log assert.Log
			a := w.start(func(c *distlock.Config) { c.Logger = zerolog.New(&log).Level(zerolog.WarnLevel) })
			b, l := w.start(nil), w.start(nil)
			ga, gb := a.mustTry("a"), b.mustTry("b")
			many := make([]*distlock.TryGuard, 80)
			for i := range many {
				many[i] = a.mustTry(fmt.Sprint("held ", i))
			}
			for i := range 2 {
				b.mustTry(fmt.Sprint("full ", i))
				w.fill(l, fmt.Sprint("full ", i))
			}
			w.fill(l, "a")
			w.fill(l, "b")
			ctx, cancel := context.WithCancel(context.Background())
			var one, other <-chan turn
			var crowd []<-chan turn
			for step := range strings.FieldsSeq(order) {
				switch step {
				case "one":
					one = a.queueCtx(ctx, "b", distlock.Holding(ga))
				case "other":
					other = b.queueCtx(ctx, "a", distlock.Holding(gb))
				case "long":
					time.Sleep(time.Minute)
				case "many":
					for i, g := range many {
						crowd = append(crowd, a.queueCtx(ctx, fmt.Sprint("full ", i%2), distlock.Holding(g)))
					}
				}
				time.Sleep(2 * time.Second)
			}
			start := time.Now()
			select {
			case got := <-one:
				wantDeadlock(t, got.err)
			case got := <-other:
				wantDeadlock(t, got.err)
			case <-time.After(time.Minute):
				t.Fatal("nobody is told")
			}
			if took := 2*time.Second + time.Since(start); took > toldAtMost {
				t.Errorf("told after %v, want at most %v", took, toldAtMost)
			}
			time.Sleep(time.Minute)
			for _, c := range append(crowd, one, other) {
				select {
				case got := <-c:
					if errors.Is(got.err, distlock.ErrDeadlock) {
						t.Errorf("another is told as well: %v", got.err)
					}
				default:
				}
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "not noted"); n != 1 {
				t.Errorf("the log tells %d times that there are too many: %s", n, log.String())
			}
			cancel()
		})
	}
}

// Two programs run under a lock each and start others, which have Managers of their own and want
// the lock of the other: the circle goes through four processes, and one of the inner ones is told.
func TestDeadlock_HeldByTheProcessesAround_OneIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		inA, inB := w.start(nil), w.start(nil)
		first := inA.queue("b", distlock.HoldingSessions(ga.Session()), distlock.WaitAtMost(time.Hour))
		time.Sleep(time.Minute)
		second := inB.queue("a", distlock.HoldingSessions(bson.NewObjectID(), gb.Session()),
			distlock.WaitAtMost(time.Hour))
		got := <-second
		if wantDeadlock(t, got.err); got.after < time.Second || got.after > 5*time.Second {
			t.Errorf("told after %v", got.after)
		}
		w.wantWaiting(first)
		w.release(gb)
		w.release(w.wantTurn(first))
		w.release(ga)
	})
}

// What one says of sessions harms nobody else: one that nobody holds counts for nothing, and who
// names the session of a stranger is told of the circle that this makes, not those in it.
func TestDeadlock_ForgedSessions_HarmNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, liar := w.start(nil), w.start(nil), w.start(nil)
		strange, own := a.mustTry("strange"), b.mustTry("own")
		honest := b.queueCtx(own.Context(), "strange")
		time.Sleep(time.Minute)
		idle := liar.queue("own", distlock.HoldingSessions(bson.NewObjectID(), bson.ObjectID{}))
		lies := liar.queue("own", distlock.HoldingSessions(strange.Session()))
		wantDeadlock(t, (<-lies).err)
		time.Sleep(time.Minute)
		w.wantWaiting(honest)
		w.wantWaiting(idle)
		w.release(strange)
		w.release(w.wantTurn(honest))
		w.release(own)
		w.release(w.wantTurn(idle))
	})
}
