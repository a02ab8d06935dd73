package claim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// hang lets no command of a process be answered until the server heals.
func (p *proc) hang() (heal func()) {
	back := make(chan struct{})
	hung := func(ctx context.Context, _ string, apply func() error) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-back:
			return apply()
		}
	}
	p.lock.Set(func(ctx context.Context, _ fault.Call, apply func() error) error {
		return hung(ctx, "", apply)
	})
	p.gate.set(hung)
	return func() { close(back) }
}

// held is how many locks the process holds.
func (p *proc) held(t *testing.T) (n int) {
	t.Helper()
	for l, err := range p.m.Inspector().Locks(context.Background()) {
		assert.Must(t, err)
		if l.Held && l.Process == p.m.Process() {
			n++
		}
	}
	return n
}

// within checks that a call returns an error that matches, no later than it may.
func within(t *testing.T, limit time.Duration, want error, call func() error) {
	t.Helper()
	begun := time.Now()
	wantErr(t, call(), want)
	if took := time.Since(begun); took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
}

// A server hangs while a slot is taken: the Claim that takes it ends with its context, and so does
// one that waits for the same slot. What the first may have left is undone, and rows are claimed as
// soon as the server is back.
func TestClaim_HangingServer_EndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{InFlight: 4})
		heal := p.hang()
		second := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			defer close(second)
			synctest.Wait()
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			within(t, 100*time.Millisecond, context.DeadlineExceeded, func() error {
				return assert.Err(p.Claim(short, 1))
			})
		}()
		within(t, time.Second, context.DeadlineExceeded, func() error {
			return assert.Err(p.Claim(ctx, 1))
		})
		<-second
		heal()
		time.Sleep(time.Minute)
		assert.Equal(t, len(p.take(t, 1)), 1, "%d rows, want %d")
	})
}

// The reply of a claim comes when the slot is lost: no row is given, although all are claimed.
func TestClaim_SlotLostBeforeTheReply_NoRowIsGiven(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		p.gate.on(func(apply func() error) error {
			p.lock.Set(refused)
			time.Sleep(takeoverTime)
			return apply()
		}, "mark one")
		rows, err := p.Claim(t.Context(), 1)
		assert.Equal(t, len(rows), 0, "%d rows were given, want %d")
		wantErr(t, err, distlock.ErrLockLost)
		if c := w.counts(); c.Claimed != 1 {
			t.Errorf("%+v: nothing was claimed, the test tests nothing", c)
		}
	})
}

// A context ends in the instant in which the slot is granted: no slot is left held.
func TestClaim_ContextEndsWithTheGrant_SlotIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		p.lock.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			err := apply()
			cancel()
			return err
		})
		wantErr(t, assert.Err(p.Claim(ctx, 1)), context.Canceled)
		p.lock.Set(nil)
		time.Sleep(time.Minute)
		if n := p.held(t); n != 1 { // the rescuer's
			t.Errorf("%d locks are held, want 1", n)
		}
	})
}

// Close ends with its context while the server hangs, one that has ended gives it the time of one
// command, and the next Close waits for what the first began.
func TestClose_HangingServer_EndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		p.take(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		heal := p.hang()
		within(t, 100*time.Millisecond, context.DeadlineExceeded, func() error { return p.Close(ctx) })
		go func() {
			time.Sleep(time.Second)
			heal()
		}()
		assert.NoErr(t, p.Close(ctx))
		w.want(Counts{Ready: 1})
		wantErr(t, assert.Err(p.Claim(t.Context(), 1)), ErrClosed)
	})
}

// The same with a server that stays away: an ended context ends the Close after one command's time.
func TestClose_LostServer_EndedContext_EndsAfterOneCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		p.take(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		heal := p.hang()
		p.gate.set(nil) // only the locks' server is lost
		most := p.m.Config().CommandTimeout
		within(t, most, context.DeadlineExceeded, func() error { return p.Close(ctx) })
		heal()
	})
}

// A context that has ended is enough to give back what is claimed, as in a deferred Close.
func TestClose_EndedContext_GivesRowsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		p.take(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoErr(t, p.Close(ctx))
		w.want(Counts{Ready: 1})
		assert.Equal(t, p.held(t), 0, "%d locks are held, want %d")
	})
}
