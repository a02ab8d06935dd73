package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// quick sets a takeover time of two minutes, because tests with a full queue are slow.
func quick(c *distlock.Config) { c.Takeover, c.Ping = 2*time.Minute, 10*time.Second }

// fill starts as many processes as the queue has places, and queues one waiter in each. If p is
// killed, these processes are killed too. The returned function ends the waits.
func (w *world) fill(p *proc, name string, opts ...distlock.Option) (left func()) {
	w.t.Helper()
	var leave []func()
	for range catalog.MaxWaiters {
		fellow := w.start(func(c *distlock.Config) {
			c.Takeover, c.Ping = p.Config().Takeover, p.Config().Ping
		})
		p.fellows = append(p.fellows, fellow)
		leave = append(leave, w.queueWaiters(fellow, name, 1, opts))
	}
	assert.MustEqual(w.t, len(w.lock(name).Waiters), catalog.MaxWaiters,
		"%d are queued, want a full queue (%d)")
	return func() {
		for _, left := range leave {
			left()
		}
	}
}

// While a queue is full of living waiters, a contender that waits for a place only reads. It does
// not try to enter the queue and condemns no process.
func TestLock_FullLineOfTheLiving_IsReadAndNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a", distlock.Why("all the time"))
		left := w.fill(a, "a")
		done := b.queue("a", distlock.WaitAtMost(time.Hour))
		before := b.store.Count(fault.Enter)
		time.Sleep(time.Hour - time.Second)
		if n := b.store.Count(fault.Enter) - before; n > 0 {
			t.Errorf("entered %d times while the queue was full", n)
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

// A process that waits for a place in a full queue rarely reads the lock, even if the document
// changes often.
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

// Callers whose number of permits differs from the lock's number must wait. Meanwhile a caller of
// the same process with the right number can acquire a free permit.
func TestLock_AnotherLimitWaited_OthersOfTheProcessEnter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dead, b := w.start(nil), w.start(nil)
		dead.mustTry("a", distlock.Permits(3))
		dead.kill()
		time.Sleep(4 * pingTime)
		waits := []<-chan turn{
			b.queue("a", distlock.Permits(5)), b.queue("a", distlock.Permits(5)),
		}
		g := w.wantTurn(b.queue("a", distlock.Permits(3)))
		for _, done := range waits {
			got := <-done // the permit of this process has a living holder
			wantErr(t, got.err, distlock.ErrPermitMismatch)
		}
		w.release(g)
	})
}

// span is the time for which a caller held the lock.
type span struct{ from, to time.Time }

// crowd lets each caller of each process hold the lock once. It returns the spans in the order of
// their ends.
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

// With more than a hundred waiters, a hand-over is fast. With a grant stream, the lock is never
// free between two holders. With polling, it is free for at most 100 ms, and for 12 ms on average.
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
					t.Logf("entered %d times, read %d times", enters, looks)
					// At each hand-over, the process of the old holder and the process of the new holder may both
					// try to enter the queue.
					if most := total + total*min(2, len(counts))/2; enters > most {
						t.Errorf("%d times entered for %d turns", enters, total)
					}
				})
			})
		}
	}
}

// If a place in a full queue becomes free, a process that waits for a place takes it within 1.25
// PollMax.
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

// If a caller is refused and the lock document does not show why, the caller pauses before each new
// try.
func TestLock_RefusedWithoutAReasonThatShows_Pauses(t *testing.T) {
	for name, refusal := range map[string]error{
		"full": catalog.ErrQueueFull, "limit": &catalog.PermitMismatchError{Name: "a", Recorded: 3},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			w.release(p.mustTry("a"))
			p.store.Set(fault.On(fault.Enter, func(apply func() error) error {
				if p.store.Count(fault.Enter) > 100_000 {
					return errors.New("it does not pause")
				}
				return refusal
			}))
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
