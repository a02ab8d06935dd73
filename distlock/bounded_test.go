package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// At each step at which the context of a call may end, the error matches context.DeadlineExceeded
// and the cause of the context.
func TestAcquire_ContextEndsAtAnyStep_ErrorMatchesTheCause(t *testing.T) {
	errWhy := errors.New("why it ended")
	lease := distlock.Lease(time.Minute)
	for _, c := range []struct {
		slow   fault.Op // empty if no step is slow
		before bool     // the context ends before the call
		try    bool
		opts   []distlock.Option
	}{
		{}, {before: true}, {before: true, try: true}, {slow: fault.Look, try: true},
		{slow: fault.Enter}, {slow: fault.Acquire, try: true},
		{slow: fault.Renew, opts: []distlock.Option{lease}},
		{slow: fault.Renew, try: true, opts: []distlock.Option{lease}},
	} {
		runInBubble(t, fmt.Sprintf("%+v", c), func(t *testing.T, w *world) {
			holder, p := w.start(nil), w.start(nil)
			if c.slow == "" || c.slow == fault.Look {
				holder.MustTry("a")
			}
			p.Store.Set(fault.Slow(100*time.Millisecond, 0, c.slow))
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWhy)
			defer cancel()
			if c.before {
				<-ctx.Done()
			}
			call := p.Lock("a").Lock
			if c.try {
				call = p.Lock("a").TryLock
			}
			err := assert.Err(call(ctx, c.opts...))
			wantErr(t, err, context.DeadlineExceeded)
			wantErr(t, err, errWhy)
			time.Sleep(time.Minute) // until the pending commands end
		})
	}
}

// The time of WaitAtMost is up at the instant at which the lock is acquired, and the lock is broken
// before the call returns. The call then ends, although it has used up its timer.
func TestWaitAtMost_UpAtTheAnswer_LockIsLost_Ends(t *testing.T) {
	for i := range 20 { // the runtime chooses between the two events at random
		runInBubble(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			p, other := w.start(nil), w.start(nil)
			p.Store.Set(fault.Slow(0, 3*time.Second, fault.Enter))
			done := p.queue("a", distlock.WaitAtMost(3*time.Second))
			time.Sleep(time.Second)
			held := w.Lock("a")
			assert.Must(t, p.Break(t.Context(), "a", held.Fence, "test", held.TS))
			g := other.MustTry("a")
			time.Sleep(time.Hour)
			select {
			case got := <-done:
				assert.Err(got.guard, got.err)
			default:
				t.Error("the call still waits")
			}
			w.release(g)
		})
	}
}
