package distlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

// A rush is callers of several processes that come again as soon as they had their turn.
type rush struct {
	w     *world
	hold  time.Duration
	turns atomic.Int64 // so far
	over  atomic.Bool

	mu    sync.Mutex
	waits []int64 // of each place that was had: for how many turns its caller had waited for it
	wg    sync.WaitGroup
}

// run lets n callers of a process come again and again. Where told is set, it notes how long each
// caller waited for its place.
func (r *rush) run(p *proc, n int, told bool) {
	for range n {
		r.wg.Go(func() {
			for !r.over.Load() {
				came := r.turns.Load()
				if told {
					p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
						err := apply()
						if call.Op == fault.Enter && err == nil && came >= 0 {
							r.placed(r.turns.Load() - came)
							came = -1
						}
						return err
					})
				}
				g, err := p.Lock("a").Lock(context.Background())
				if err != nil {
					r.w.t.Errorf("Lock: %v", err)
					return
				}
				r.turns.Add(1)
				time.Sleep(r.hold)
				_ = g.Release()
			}
		})
	}
}

func (r *rush) placed(waited int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits = append(r.waits, waited)
}

// It tries to break: a process without a place in a full line has one within two rounds of the
// line, however large the crowd of another process, and however many others wait outside.
func TestLock_BesideACrowd_HasAPlaceWithinTwoRounds(t *testing.T) {
	for _, c := range []struct {
		crowd, singles int
		hold           time.Duration
	}{
		{110, 1, 20 * time.Millisecond}, {110, 20, 20 * time.Millisecond},
		{110, effort.Share(200), 10 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d of one and %d alone", c.crowd, c.singles), func(t *testing.T) {
			if c.singles > 1 && testing.Short() {
				t.Skip("takes seconds")
			}
			inBubble(t, func(t *testing.T, w *world) {
				r := &rush{w: w, hold: c.hold}
				r.run(w.start(nil), c.crowd, false)
				synctest.Wait()
				for range c.singles {
					r.run(w.start(nil), 1, true)
				}
				for r.turns.Load() < int64(250+effort.Share(2*c.singles)) {
					time.Sleep(c.hold)
				}
				r.over.Store(true)
				r.wg.Wait()
				r.mu.Lock() // a grant may be told before the reply of entering
				defer r.mu.Unlock()
				most, outside := int64(0), 0
				for _, turns := range r.waits {
					if most = max(most, turns); turns > 1 {
						outside++
					}
				}
				t.Logf("%d places were had, %d of them from outside, after %d turns at most", len(r.waits),
					outside, most)
				if most > 2*catalog.MaxWaiters {
					t.Errorf("a place was had after %d turns only", most)
				}
			})
		})
	}
}

// It tries to break: who has just had a turn leaves the last places to those who wait for longer,
// and has one of them after a time.
func TestLock_HadItsTurn_LeavesTheLastPlaces(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, crowd, back := w.start(nil), w.start(nil), w.start(nil)
		w.release(w.wantTurn(back.queue("a")))
		g := holder.mustTry("a")
		left := []func(){w.stand(crowd, "a", crowded, nil)}
		come := func() { left = append(left, w.stand(w.start(nil), "a", 1, nil)) }
		for range 5 {
			come()
		}
		waits := back.queue("a")
		inLine := func(want int, when string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if n := len(w.lock("a").Waiters); n != want {
				t.Fatalf("%s: %d stand in the line, want %d", when, n, want)
			}
		}
		inLine(95, "it had its turn just now")
		come()
		inLine(96, "another comes, who had none")
		for _, c := range []struct {
			turns int64
			want  int
		}{{50, 96}, {100, 97}} {
			w.rewrite("a", map[string]any{"fence": g.Fence() + c.turns - 1})
			inLine(c.want, fmt.Sprintf("%d turns later", c.turns))
		}
		w.release(g)
		for _, left := range left {
			left()
		}
		w.release(w.wantTurn(waits))
	})
}

// It tries to break: where grants are asked for, a lock that crowds of two processes wait for
// stands free for a small part of a turn when it goes from one crowd to the other, although the
// other one has waited for long and far from the front.
func TestLock_CrowdsInTurn_GrantsAreAskedForInTime(t *testing.T) {
	const many, hold, rounds = 24, 50 * time.Millisecond, 4
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil).withoutNotices(), w.start(nil).withoutNotices()
		var free time.Time
		turns := func(from, to int, waits []<-chan turn) (longest time.Duration) {
			for _, next := range waits[from:to] {
				g := w.wantTurn(next)
				longest = max(longest, time.Since(free))
				time.Sleep(hold)
				w.release(g)
				free = time.Now()
			}
			return longest
		}
		for round := range rounds {
			var waits []<-chan turn
			for i := range 2 * many {
				p := a
				if i >= many {
					p = b
				}
				waits = append(waits, p.queue("a"))
				synctest.Wait()
			}
			free = time.Now()
			turns(0, many, waits)
			longest := turns(many, 2*many, waits)
			t.Logf("free for %v at most", longest)
			if round > 0 && longest > hold/2 { // at first nobody knows how long a turn takes
				t.Errorf("round %d: it stood free for %v", round, longest)
			}
		}
	})
}
