package distlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/fault"
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

// run lets n callers of a process come again and again. Where told is set, it notes how long each caller
// waited for its place.
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

// It tries to break: a process without a place in a full line has one within two rounds of the line,
// however large the crowd of another process, and however many others wait outside.
func TestLock_BesideACrowd_HasAPlaceWithinTwoRounds(t *testing.T) {
	for _, c := range []struct {
		crowd, singles int
		hold           time.Duration
	}{
		{110, 1, time.Second}, {110, 20, time.Second}, {110, 20, 10 * time.Millisecond},
		{110, 150, 10 * time.Millisecond}, {110, 200, 20 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d of one and %d alone, turns of %v", c.crowd, c.singles, c.hold), func(t *testing.T) {
			if c.singles > 20 && testing.Short() {
				t.Skip("takes seconds")
			}
			inBubble(t, func(t *testing.T, w *world) {
				r := &rush{w: w, hold: c.hold}
				r.run(w.start(nil), c.crowd, false)
				for range c.singles {
					r.run(w.start(nil), 1, true)
				}
				for r.turns.Load() < 5*catalog.MaxWaiters {
					time.Sleep(c.hold)
				}
				r.over.Store(true)
				r.wg.Wait()
				most, outside := int64(0), 0
				for _, turns := range r.waits {
					if most = max(most, turns); turns > 1 {
						outside++
					}
				}
				t.Logf("%d places were had, %d of them from outside, after %d turns at most", len(r.waits), outside, most)
				if most > 2*catalog.MaxWaiters {
					t.Errorf("a place was had after %d turns only", most)
				}
			})
		})
	}
}
