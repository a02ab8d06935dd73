package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// breaking takes a lock away from its first holder, who learns of it with its next ping.
func (w *world) breaking(p *proc, name string) {
	w.t.Helper()
	assert.Must(w.t, p.Break(context.Background(), name, w.lock(name).Holders()[0].Fence, "test"))
	time.Sleep(2 * pingTime)
}

// The outcome stays with the guard: whoever asks for it first, or again, after the Manager was
// closed and the lock given to somebody else, is told that it was not held for the whole of the
// work.
func TestRelease_LostOrClosedBefore_OutcomeStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		lost, late, open := a.mustTry("lost"), a.mustTry("late"), a.mustTry("open")
		inner := assert.Value(open.Reenter())(t)
		done := assert.Value(open.Reenter())(t)
		orderly := a.mustTry("orderly")
		all := assert.Value(a.LockAll(t.Context(), []string{"x", "y"}))(t)
		w.release(done)
		w.release(orderly)
		for _, g := range []*distlock.TryGuard{lost, late, all.All()[0]} {
			w.breaking(b, g.Name())
		}
		wantErr(t, lost.Release(), distlock.ErrLockLost)
		assert.Must(t, a.Close(t.Context()))
		b.mustTry("open")
		for range 2 {
			wantErr(t, lost.Release(), distlock.ErrLockLost)
			wantErr(t, late.Release(), distlock.ErrLockLost)
			wantErr(t, inner.Release(), distlock.ErrClosed)
			wantErr(t, open.Release(), distlock.ErrClosed)
			err := all.Release()
			wantErr(t, err, distlock.ErrLockLost)
			wantErr(t, err, distlock.ErrClosed)
			for _, g := range []*distlock.TryGuard{done, orderly} {
				assert.NoErr(t, g.Release(), "released before, and again")
			}
		}
	})
}

// Do returns nil only when the lock was held for the whole of work: not when it was lost and the
// Manager closed, nor when the Manager was closed during work, as a signal's handler does.
func TestDo_ClosedDuringWork_IsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		b := w.start(nil)
		for name, c := range map[string]struct {
			during func(p *proc)
			want   error
		}{
			"lost":   {func(*proc) { w.breaking(b, "lost") }, distlock.ErrLockLost},
			"closed": {func(p *proc) { _ = p.Close(t.Context()) }, distlock.ErrClosed},
			"lost and closed": {func(p *proc) { w.breaking(b, "lost and closed"); _ = p.Close(t.Context()) },
				distlock.ErrLockLost},
			"lost, released": {func(*proc) { w.breaking(b, "lost, released") }, distlock.ErrLockLost},
		} {
			p := w.start(nil)
			err := p.Do(t.Context(), name, func(_ context.Context, g *distlock.TryGuard) error {
				c.during(p)
				b.mustTry(name)
				if name == "lost, released" {
					_ = g.Release() // and whoever wrote work does not look
				}
				return nil
			})
			if !errors.Is(err, c.want) {
				t.Errorf("%s during work: %v, want %v", name, err, c.want)
			}
		}
	})
}

// Work that had ended before the Manager was closed, and a guard that is released only then: the
// library cannot know, and says so. Released before, Close changes nothing.
func TestRelease_WorkHadEndedBeforeClose_SaysClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		before, after := p.mustTry("before"), p.mustTry("after")
		assert.NoErr(t, before.Release(), "released before Close")
		assert.Must(t, p.Close(t.Context()))
		err := after.Release()
		wantErr(t, err, distlock.ErrClosed)
		if errors.Is(err, distlock.ErrLockLost) {
			t.Errorf("nobody took it, and the error says %v", err)
		}
	})
}
