package election_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
)

// A pause that overflows is refused, and does not become zero.
func TestRun_EndlessBackoff_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		calls := 0
		err := w.start().lead(ctx, func() error {
			if calls++; calls > 10 {
				cancel()
			}
			return nil
		}, election.Backoff(math.MaxInt64, math.MaxInt64))
		wantErr(t, err, distlock.ErrBadOption)
		if calls > 0 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A call of YieldRequested after the term is harmless: no data race, no goroutine remains, and no
// request arrives.
func TestYieldRequested_AfterTheTerm_IsHarmless(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.start().Manager
		var told atomic.Int32
		for range 100 {
			var left sync.WaitGroup
			err := election.Run(t.Context(), m, name, func(_ context.Context, l *election.Leadership) error {
				left.Go(func() {
					select {
					case <-l.YieldRequested():
						told.Add(1)
					case <-time.After(time.Second):
					}
				})
				return nil
			}, election.Once())
			assert.Must(t, err)
			left.Wait()
		}
		assert.Equal(t, told.Load(), 0, "%d were told, want %d")
	})
}
