package claim

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// It tries to break: a Manager that is closed while a handler runs gives the row to nobody else before
// the handler has returned and its row is done; a handler that runs on after the context of Close
// keeps its row until the takeover.
func TestClose_OfTheManager_HandlerRuns_KeepsItsRow(t *testing.T) {
	for how, c := range map[string]struct {
		within, work time.Duration
		batch        int
	}{
		"one":           {5 * time.Minute, 2 * time.Minute, 1},
		"a batch":       {5 * time.Minute, 2 * time.Minute, 10},
		"beyond it":     {10 * time.Second, 2 * time.Minute, 1},
		"still running": {10 * time.Second, 14 * time.Minute, 1},
	} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a := w.start(Config{Batch: c.batch, InFlight: 2 * c.batch})
				w.add(0, 1)
				var calls, working, most atomic.Int32
				handle := func(work time.Duration) func(ctx context.Context, _ *Row[item]) error {
					return func(ctx context.Context, _ *Row[item]) error {
						calls.Add(1)
						if n := working.Add(1); n > most.Load() {
							most.Store(n)
						}
						defer working.Add(-1)
						<-ctx.Done()
						time.Sleep(work)
						return nil
					}
				}
				ended := make(chan error, 1)
				go func() { ended <- a.Run(t.Context(), handle(c.work)) }()
				time.Sleep(time.Minute)
				b := w.start(Config{})
				ctx, stop := context.WithCancel(t.Context())
				other := make(chan error, 1)
				go func() { other <- b.Run(ctx, handle(0)) }()
				time.Sleep(time.Minute)
				assert.MustEqual(t, calls.Load(), 1, "%d calls, want %d")
				closing := time.Now()
				within, cancel := context.WithTimeout(context.Background(), c.within)
				defer cancel()
				err := a.m.Close(within)
				if took := time.Since(closing); took != min(c.within, c.work) || (err == nil) != (c.work < c.within) ||
					err != nil && !strings.Contains(err.Error(), `"claim:`) {
					t.Errorf("Close took %v: %v", took, err)
				}
				wantErr(t, <-ended, distlock.ErrClosed)
				w.settle(time.Hour, allDone(1))
				if calls.Load() != 1 || most.Load() != 1 {
					t.Errorf("%d calls, %d at a time", calls.Load(), most.Load())
				}
				stop()
				assert.NoErr(t, <-other)
			})
		})
	}
}
