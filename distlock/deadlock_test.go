package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

func wantDeadlock(t *testing.T, err error) {
	t.Helper()
	var d *distlock.DeadlockError
	if !errors.As(err, &d) || !errors.Is(err, distlock.ErrDeadlock) {
		t.Fatalf("error is %v, want a *DeadlockError", err)
	}
	if !strings.Contains(err.Error(), "Reenter") {
		t.Errorf("the error does not name the remedy: %v", err)
	}
}

// If Lock would wait for the guard whose context it gets, Lock returns a DeadlockError and sends no
// command.
func TestDeadlock_WithItself_ErrorWithoutCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		shared, permit := distlock.Shared(), distlock.Permits(2)
		g, reader := p.MustTry("g", distlock.Why("mine")), p.MustTry("reader", shared)
		one := p.MustTry("p", permit)
		two, err := p.Lock("p").TryLock(one.Context(), permit)
		assert.Must(t, err)
		inner := assert.Value(g.Reenter())(t)
		in, err := p.Lock("in").TryLock(g.Context())
		assert.Must(t, err)
		before, start := p.Store.Total(), time.Now()
		ask := func(ctx context.Context, name string, opts ...distlock.Option) {
			t.Helper()
			_, err := p.Lock(name).Lock(ctx, opts...)
			wantDeadlock(t, err)
		}
		ask(g.Context(), "g")
		ask(inner.Context(), "g", shared, distlock.WaitAtMost(time.Hour))
		ask(in.Context(), "g") // an ancestor context holds g
		ask(reader.Context(), "reader")
		ask(two.Context(), "p", permit)
		_, err = p.LockAll(g.Context(), []string{"a", "g"})
		wantDeadlock(t, err)
		_, err = p.LockAll(in.Context(), []string{"a", "in"})
		wantDeadlock(t, err)
		wantDeadlock(t, p.Lock("g").LockInTransaction(g.Context()))
		err = p.Do(g.Context(), "g", func(context.Context, *distlock.TryGuard) error { return nil })
		wantDeadlock(t, err)
		if n := p.Store.Total() - before; n != 0 || time.Since(start) != 0 {
			t.Errorf("%d commands and %v", n, time.Since(start))
		}
		w.release(w.wantTurn(p.queueCtx(reader.Context(), "reader", shared))) // readers share
		w.release(two)
		w.release(w.wantTurn(p.queueCtx(one.Context(), "p", permit)))
		_, err = p.Lock("g").Lock(t.Context(), distlock.WaitAtMost(time.Minute))
		wantErr(t, err, distlock.ErrHeld) // another context may belong to another caller
		_, err = p.Lock("g").Lock(g.Context(), distlock.WaitAtMost(0))
		wantErr(t, err, distlock.ErrHeld) // WaitAtMost(0) does not wait
	})
}

// A wait with the context of a released or lost guard is not a deadlock.
func TestDeadlock_GuardIsOver_DoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, b := w.start(nil), w.start(nil)
		released, broken := p.MustTry("released"), p.MustTry("broken")
		w.release(released)
		assert.Must(t, b.Break(t.Context(), "broken", broken.Fence(), "test"))
		time.Sleep(2 * pingTime)
		for _, g := range []*distlock.TryGuard{released, broken} {
			ctx := context.WithoutCancel(g.Context())
			w.release(w.wantTurn(p.queueCtx(ctx, g.Name())))
		}
	})
}
