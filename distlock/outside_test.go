package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// soon is the time limit, after the takeover time, for the acquisition of a dead process's lock.
const soon = 2 * pingTime

// quick sets a short takeover time, because a test with a full queue is slow.
func quick(c *distlock.Config) { c.Takeover, c.Ping = 2*time.Minute, 10*time.Second }

// fill fills the queue of a lock with waiters of many processes, which die with p. The returned
// function ends the waiters.
func (w *world) fill(p *proc, name string, opts ...distlock.Option) (left func()) {
	w.t.Helper()
	var leave []func()
	for range catalog.MaxWaiters {
		fellow := w.start(func(c *distlock.Config) {
			c.Takeover, c.Ping = p.Config().Takeover, p.Config().Ping
		})
		p.fellows = append(p.fellows, fellow)
		leave = append(leave, w.stand(fellow, name, 1, opts))
	}
	assert.MustEqual(w.t, len(w.lock(name).Waiters), catalog.MaxWaiters,
		"%d are queued, want a full queue (%d)")
	return func() {
		for _, left := range leave {
			left()
		}
	}
}

// A dead process that holds a lock and has filled its queue delays a contender only for the
// takeover time.
func TestLock_FullLineOfADeadProcess_IsWatchedAndCleared(t *testing.T) {
	for name, opts := range map[string][]distlock.Option{
		"exclusive": nil, "shared": {distlock.Shared()}, "permit": {distlock.Permits(1)},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			dead, b := w.start(quick), w.start(quick)
			mine := opts
			if name == "shared" { // readers wait only behind a writer
				mine = nil
			}
			dead.mustTry("a", mine...)
			left := w.fill(dead, "a", opts...)
			dead.kill()
			died := time.Now()
			opts = append(slices.Clip(opts), distlock.WaitAtMost(time.Hour)) // bounds a failed test
			g := w.wantTurn(b.queue("a", opts...))
			if took := time.Since(died); took < 110*time.Second-slack || took > 140*time.Second {
				t.Errorf("it had the lock after %v, want the takeover time", took)
			}
			if n := b.store.Count(fault.Enter); n > 3 {
				t.Errorf("it entered %d times, want when there was room only", n)
			}
			if l := w.lock("a"); len(l.Waiters) != 0 || len(l.Holders()) != 1 {
				t.Errorf("%d hold it and %d wait, want the living alone", len(l.Holders()), len(l.Waiters))
			}
			w.release(g)
			left()
		})
	}
}

// While a contender waits for room in a queue full of living waiters for an hour, it only reads.
func TestLock_FullLineOfTheLiving_IsReadAndNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a", distlock.Why("all the time"))
		left := w.fill(a, "a")
		done := b.queue("a", distlock.WaitAtMost(time.Hour))
		before := b.store.Count(fault.Enter)
		time.Sleep(time.Hour - time.Second)
		if n := b.store.Count(fault.Enter) - before; n > 0 {
			t.Errorf("%d times entered while the line was full", n)
		}
		got := <-done
		e := held(t, got.err)
		if got.after != time.Hour || e.Process != a.Process() || e.Why != "all the time" ||
			e.Waiters != catalog.MaxWaiters || b.store.Count(fault.Condemn) != 0 {
			t.Errorf("after %v: %+v", got.after, e)
		}
		w.release(g)
		left()
	})
}

// A process without room in a queue reads seldom, however fast turns pass.
func TestLock_FullLineThatTurns_IsReadSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		left := w.fill(a, "a")
		done := b.queue("a", distlock.WaitAtMost(11*time.Second))
		before := b.store.Count(fault.Look)
		for range 1000 {
			w.rewrite("a", map[string]any{"when": bson.NewDateTimeFromTime(time.Now())})
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.store.Count(fault.Look) - before; n > 50 {
			t.Errorf("%d reads in ten seconds", n)
		}
		held(t, (<-done).err)
		w.release(g)
		left()
	})
}

// A dead holder with another limit delays a contender only for the takeover time.
func TestAcquire_AnotherLimitOfADeadHolder_IsTaken(t *testing.T) {
	limits := map[string][]distlock.Option{
		"three permits": {distlock.Permits(3)}, "five permits": {distlock.Permits(5)},
		"exclusive": nil, "shared": {distlock.Shared()},
	}

	for used, usedOpts := range limits {
		for asked, askedOpts := range limits {
			if used == asked || !(used == "three permits" || used == "five permits" ||
				asked == "three permits" || asked == "five permits") {
				continue
			}
			runInBubble(t, used+", then "+asked, func(t *testing.T, w *world) {
				dead, b, c := w.start(nil), w.start(nil), w.start(nil)
				dead.mustTry("tried", usedOpts...)
				dead.mustTry("waited", usedOpts...)
				died := time.Now()
				dead.kill()
				for _, p := range []*proc{b, c} { // the holder's ping is still fresh
					_, err := p.try("tried", askedOpts...)
					wantErr(t, err, distlock.ErrPermitMismatch)
					_, err = p.Lock("tried").Lock(t.Context(), askedOpts...)
					wantErr(t, err, distlock.ErrPermitMismatch)
				}
				time.Sleep(3 * pingTime) // the holder's ping is old now
				waits := c.queue("waited", askedOpts...)
				var g *distlock.TryGuard
				var err error
				for g == nil && time.Since(died) < 2*takeoverTime {
					if g, err = b.try("tried", askedOpts...); g == nil {
						wantErr(t, err, distlock.ErrPermitMismatch)
						time.Sleep(pingTime)
					}
				}
				if took := time.Since(died); g == nil || took < takeoverTime-pingTime-slack ||
					took > takeoverTime+soon {
					t.Fatalf("TryLock: %v after %v, want the takeover time", err, took)
				}
				w.release(g)
				g = w.wantTurn(waits)
				if took := time.Since(died); took > takeoverTime+soon {
					t.Errorf("Lock had it after %v, want the takeover time", took)
				}
				w.release(g)
			})
		}
	}
}

// Lock and TryLock return the same error for a living holder with another limit.
func TestAcquire_AnotherLimitOfALivingHolder_SameAnswerByTryLockAndLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, gone := w.start(nil), w.start(nil), w.start(nil)
		holds := a.mustTry("a", distlock.Permits(3))
		gone.mustTry("a", distlock.Permits(3))
		gone.kill()
		time.Sleep(3 * pingTime)
		for name, opts := range map[string][]distlock.Option{
			"another number": {distlock.Permits(5)}, "without": nil, "shared": {distlock.Shared()},
		} {
			_, tried := b.try("a", opts...)
			start := time.Now()
			_, waited := b.Lock("a").Lock(t.Context(), opts...)
			for _, err := range []error{tried, waited} {
				var limit *distlock.PermitMismatchError
				if !errors.As(err, &limit) || limit.Recorded != 3 || errors.Is(err, distlock.ErrHeld) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("%s: Lock was told after %v, want at once", name, took)
			}
		}
		time.Sleep(takeoverTime) // the dead holder is evicted, and the living holder counts
		for range 2 {
			wantErr(t, assert.Err(b.try("a", distlock.Permits(5))), distlock.ErrPermitMismatch)
		}
		w.release(holds)
	})
}

// A waiter behind a silent holder with another limit returns an error once that holder pings again.
func TestLock_AnotherLimitOfASilentHolder_LivesAgain_IsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a", distlock.Permits(3))
		a.kill()
		time.Sleep(4 * pingTime)
		done := b.queue("a", distlock.Permits(5))
		bounded := c.queue("a", distlock.WaitAtMost(time.Minute))
		got := <-bounded
		wantErr(t, got.err, distlock.ErrPermitMismatch)
		assert.Equal(t, got.after, time.Minute, "told after %v, want one minute (%v)")
		w.wantWaiting(done)
		a.store.Set(nil)
		start := time.Now()
		got = <-done
		wantErr(t, got.err, distlock.ErrPermitMismatch)
		const most = pingTime + pingTime/10 + 6*time.Second // the longest ping and pause
		if took := time.Since(start); took > most {
			t.Errorf("told after %v, want %v at most", took, most)
		}
		w.release(g)
	})
}

// A caller with a mismatched limit does not keep other callers of its process from a free permit.
func TestLock_AnotherLimitWaited_OthersOfTheProcessEnter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dead, b := w.start(nil), w.start(nil)
		dead.mustTry("a", distlock.Permits(3))
		dead.kill()
		time.Sleep(4 * pingTime)
		waits := b.queue("a", distlock.Permits(5))
		g := w.wantTurn(b.queue("a", distlock.Permits(3)))
		got := <-waits // the permit of this process has a living holder
		wantErr(t, got.err, distlock.ErrPermitMismatch)
		w.release(g)
	})
}

// span is the time of one turn.
type span struct{ from, to time.Time }

// crowd lets each process's callers hold the lock once, and returns their spans in order.
func (w *world) crowd(hold time.Duration, counts map[*proc]int) []span {
	w.t.Helper()
	var mu sync.Mutex
	var spans []span
	var wg sync.WaitGroup
	for p, n := range counts {
		for range n {
			wg.Go(func() {
				g, err := p.Lock("a").Lock(context.Background())
				if err != nil {
					w.t.Errorf("Lock: %v", err)
					return
				}
				from := time.Now()
				time.Sleep(hold)
				mu.Lock()
				spans = append(spans, span{from, time.Now()})
				mu.Unlock()
				assert.NoErr(w.t, g.Release(), "Release")
			})
		}
	}
	wg.Wait()
	return spans
}

// A lock that callers wait for, in its queue or outside of it, is not free for long:
//   - With notices, a hand-over takes no time in these tests.
//   - With polling, a hand-over takes at most 100 ms, and 1.2*Poll/50 on average.
func TestLock_MoreThanHundredWaiters_LockDoesNotStandFree(t *testing.T) {
	const hold = 10 * time.Millisecond
	for name, counts := range map[string][]int{
		"101 of one": {101}, "250 of one": {250}, "100 and 50": {100, 50}, "60, 60 and 60": {60, 60, 60},
	} {
		for _, notices := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, notices %v", name, notices), func(t *testing.T) {
				if testing.Short() && name != "101 of one" && name != "100 and 50" {
					t.Skip("takes seconds")
				}
				inBubble(t, func(t *testing.T, w *world) {
					crowd, total := map[*proc]int{}, 0
					gap, most := time.Duration(0), time.Duration(0)
					for _, n := range counts {
						p := w.start(nil)
						if !notices {
							p.withoutNotices()
							gap, most = 500*time.Millisecond/50*12/10, 100*time.Millisecond
						}
						crowd[p] = n
						total += n
					}
					spans := w.crowd(hold, crowd)
					free, longest := time.Duration(0), time.Duration(0)
					for i := 1; i < len(spans); i++ {
						d := spans[i].from.Sub(spans[i-1].to)
						free, longest = free+d, max(longest, d)
					}
					t.Logf("%d turns of %v: free for %v, at most %v in one piece", len(spans), hold, free, longest)
					if len(spans) != total || longest > most || free > time.Duration(total)*gap {
						t.Errorf("%d turns, free for %v, at most %v in one piece; want %d and %v", len(spans),
							free, longest, total, most)
					}
					enters, looks := 0, 0
					for p := range crowd {
						enters, looks = enters+p.store.Count(fault.Enter), looks+p.store.Count(fault.Look)
					}
					t.Logf("entered %d times, looked %d times", enters, looks)
					// At most two processes try to enter after a turn: the processes of the
					// released and of the granted session.
					if most := total + total*min(2, len(counts))/2; enters > most {
						t.Errorf("%d times entered for %d turns", enters, total)
					}
				})
			})
		}
	}
}

// A process without room in the queue finds free room within PollMax.
func TestLock_QueueGivesUp_TheNextFindsRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		left := w.fill(b, "a")
		next := b.queue("a")
		time.Sleep(time.Minute)
		left()
		time.Sleep(b.Config().PollMax + b.Config().PollMax/4)
		synctest.Wait()
		if l := w.lock("a"); len(l.Waiters) != 1 {
			t.Errorf("%d are queued, want the one that waited for room", len(l.Waiters))
		}
		w.release(g)
		w.release(w.wantTurn(next))
	})
}

// A refused caller pauses before each new try, even if a read shows no reason for the refusal.
func TestLock_RefusedWithoutAReasonThatShows_Pauses(t *testing.T) {
	for name, refusal := range map[string]error{
		"full": catalog.ErrQueueFull, "limit": &catalog.PermitMismatchError{Name: "a", Recorded: 3},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			w.release(p.mustTry("a"))
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op != fault.Enter {
					return apply()
				}
				if p.store.Count(fault.Enter) > 100_000 {
					return errors.New("it does not pause")
				}
				return refusal
			})
			done := p.queue("a", distlock.WaitAtMost(time.Hour))
			got := <-done
			if !errors.Is(got.err, distlock.ErrHeld) && !errors.Is(got.err, distlock.ErrPermitMismatch) ||
				got.after != time.Hour {
				t.Errorf("after %v: %v", got.after, got.err)
			}
			if n := p.store.Count(fault.Enter); n > 2_500 {
				t.Errorf("it entered %d times in an hour", n)
			}
		})
	}
}

// If the outcome of a step against a dead process is unknown, a wait in the queue or outside of it
// continues. The next read shows the outcome.
func TestLock_StepAgainstTheDeadLost_GoesOn(t *testing.T) {
	ways := map[string]func(w *world, dead *proc) (left func()){
		"full line": func(w *world, dead *proc) func() {
			dead.mustTry("a")
			return w.fill(dead, "a")
		},
		"another limit": func(w *world, dead *proc) func() {
			dead.mustTry("a", distlock.Permits(2))
			return func() {}
		},
		"in line": func(w *world, dead *proc) func() {
			dead.mustTry("a")
			return func() {}
		},
	}
	for name, build := range ways {
		for _, op := range []fault.Op{fault.Condemn, fault.Evict} {
			for _, applied := range []bool{false, true} {
				title := fmt.Sprintf("%s, %s, applied %v", name, op, applied)
				runInBubble(t, title, func(t *testing.T, w *world) {
					dead, b := w.start(quick), w.start(quick)
					left := build(w, dead)
					dead.kill()
					time.Sleep(30 * time.Second)
					var lost atomic.Int32 // a command may outlive its caller
					b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
						if call.Op != op || lost.Add(1) > 2 {
							return apply()
						}
						if applied {
							_ = apply()
						}
						return fault.Lost(op)
					})
					start := time.Now()
					w.release(w.wantTurn(b.queue("a", distlock.WaitAtMost(time.Hour))))
					if took := time.Since(start); lost.Load() == 0 || took > 2*time.Minute+2*soon {
						t.Errorf("it had the lock after %v, %d times sent", took, lost.Load())
					}
					left()
				})
			}
		}
	}
}
