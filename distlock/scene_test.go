package distlock_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A waiter gives up, and its error tells what the latest look showed, in the very instant in which
// the wait loop condemns the holder on that look. A look is never written to once others have it;
// the race detector sees it otherwise.
func TestLock_GivesUpWhileTheHolderIsCondemned_NoDataRace(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dead, b := w.start(nil), w.start(nil)
		dead.mustTry("a", distlock.Shared())
		dead.mustTry("a", distlock.Shared()) // a second place: its mark is not written twice
		ctx, cancel := context.WithCancel(context.Background())
		first, second := b.queueCtx(ctx, "a"), b.queue("a")
		dead.kill()
		var leaving, told atomic.Bool
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Condemn:
				err := apply()
				cancel()
				yieldUntil(leaving.Load)
				return err
			case call.Op == fault.Release && !leaving.Swap(true):
				for range 1000 { // the wait loop goes on meanwhile, and nothing orders the two
					runtime.Gosched()
				}
				return fault.Refused(call.Op)
			case call.Op == fault.Evict:
				yieldUntil(told.Load)
			}
			return apply()
		})
		got := <-first
		wantErr(t, got.err, context.Canceled)
		wantErr(t, got.err, distlock.ErrHeld)
		told.Store(true)
		w.release(w.wantTurn(second))
		assert.Equal(t, b.store.Count(fault.Condemn), 1,
			"%d processes condemned, want one although it had two places (%d)")
	})
}

func yieldUntil(done func() bool) {
	for !done() {
		runtime.Gosched()
	}
}
