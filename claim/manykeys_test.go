package claim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
)

// It tries to break: there are more held keys than one command tells, and the rows behind those
// that it does not tell are before all others. A row of a free key is begun at once, none behind a
// held one is before its turn, and a process that waits costs no more.
func TestChains_MoreHeldKeysThanAreTold_OthersGoOn(t *testing.T) {
	for _, batch := range []int{1, 5} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			const keys = 300
			cfg := w.chained(false)
			cfg.InFlight, cfg.Batch, cfg.Workers = keys, keys, 10
			w.rows.HeldAtMost(50)
			w.addKeys(0, keysOf(keys, 2, true)...)
			l := w.line()
			holder := w.start(cfg)
			held := holder.take(t, keys)
			assert.MustEqual(t, len(held), keys, "%d rows claimed, want %d")
			cfg.Batch = batch
			p := w.start(cfg)
			free := make(chan int, 1) // what had been asked when its handler began
			p.run(t, l.of(func(row *Row[item]) error {
				if row.Doc.ID == 1000 {
					free <- p.gate.sent()
				}
				return nil
			}))
			time.Sleep(10 * time.Second)
			before := p.gate.sent()
			w.addKeys(1000, "free")
			w.settle(2*time.Second, func(c Counts) bool { return c.Done == 1 })
			if n := <-free - before; n > 8 {
				t.Errorf("%d commands until a row behind held keys is begun", n)
			}
			before = p.gate.sent()
			time.Sleep(time.Minute)
			if n := p.gate.sent() - before; n > 60 {
				t.Errorf("%d commands in a minute in which nothing may be claimed", n)
			}
			for _, row := range held {
				assert.Must(t, row.Done(t.Context()))
			}
			w.settle(30*time.Second, allDone(2*keys+1))
			l.want(t)
		})
	}
}

// It tries to break: a question that failed is taken for one that found nothing, since a further
// one was answered.
func TestChains_MoreHeldKeysThanAreTold_FailureIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const keys = 100
		cfg := w.chained(false)
		cfg.InFlight, cfg.Batch = keys, keys
		w.rows.HeldAtMost(50)
		w.addKeys(0, keysOf(keys, 2, true)...)
		w.start(cfg).take(t, keys)
		p := w.start(cfg)
		p.gate.fail("candidates")
		wantErr(t, assert.Err(p.Claim(t.Context(), 1)), errCut)
	})
}

// It tries to break: keys that are held are forgotten before all are learnt that come first, since
// the server is slow, and the row behind them is never begun.
func TestChains_ManyHeldKeys_SlowServer_OthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const keys = 5000
		cfg := w.chained(false)
		cfg.InFlight, cfg.Batch, cfg.Workers = keys, 1000, 10
		w.rows.HeldAtMost(50)
		w.addKeys(0, keysOf(keys, 2, true)...)
		holder, held := w.start(cfg), 0
		for held < keys {
			held += len(holder.take(t, 1000))
		}
		cfg.Batch = 1
		p := w.start(cfg)
		p.slow(time.Second)
		w.addKeys(keys*2, "free")
		begun := make(chan int, 1)
		p.run(t, func(_ context.Context, row *Row[item]) error { begun <- row.Doc.ID; return nil })
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Errorf("not begun within a minute: %v", p.gate.tally())
		}
	})
}
