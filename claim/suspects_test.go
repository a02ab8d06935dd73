package claim

import (
	"context"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/rows"
)

// It tries to break: a row that kills its process takes with it those that the other workers of the
// process are at, each time, until all of them are dead.
func TestRescue_RowKillsBesideOthers_OnlyItDies(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one by one": {Workers: 8, MaxAttempts: 3}, "in batches": {Workers: 8, Batch: 20, MaxAttempts: 3},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n, poison = 30, 3
			w.add(0, n)
			over, crashes := make(chan struct{}), make(chan struct{}, 100)
			end := sync.OnceFunc(func() { close(over) })
			defer end()
			var stops []func()
			next := func() {
				p := w.start(cfg)
				stops = append(stops, p.run(t, func(_ context.Context, row *Row[item]) error {
					if row.Doc.ID != poison {
						time.Sleep(3 * time.Second)
						return nil
					}
					time.Sleep(time.Second)
					p.cut()
					crashes <- struct{}{}
					<-over
					return errCut
				}))
			}
			next()
			crashed := 0
			w.settle(9*time.Hour, func(c Counts) bool {
				for ; len(crashes) > 0; crashed++ {
					<-crashes
					next()
				}
				return c.Done+c.Dead == n
			})
			if c := w.counts(); c.Dead != 1 || w.row(poison).Mark.State != rows.Dead || crashed != cfg.MaxAttempts+1 {
				t.Errorf("%+v after %d crashes, want only the poison dead", c, crashed)
			}
			end()
			for _, stop := range stops {
				stop()
			}
		})
	}
}

// It tries to break: rows that a caller of Claim has died with are given together again, until one of them
// has killed so many processes that all are dead.
func TestClaim_RescuedRows_AreGivenAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 5
		cfg := Config{MaxAttempts: 3, InFlight: n}
		must2(w.start(cfg).Claim(t.Context(), n)) // it looks after the rows of all
		w.add(0, n)
		for range cfg.MaxAttempts {
			w.settle(3*takeoverTime, func(c Counts) bool { return c.Ready == n })
			p := w.start(cfg)
			must2(p.Claim(t.Context(), n))
			p.cut()
		}
		w.settle(3*takeoverTime, func(c Counts) bool { return c.Ready == n-1 && c.Dead == 1 })
	})
}
