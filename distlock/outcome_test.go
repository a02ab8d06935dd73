package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"mongodlm/distlock"
)

// breaking takes a lock away from its first holder, who learns of it with its next ping.
func (w *world) breaking(p *proc, name string) {
	w.t.Helper()
	if err := p.Break(context.Background(), name, w.lock(name).Holders()[0].Fence, "test"); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(2 * pingTime)
}

// The outcome stays with the guard: whoever asks for it first, or again, after the Manager was
// closed and the lock given to somebody else, is told that it was not held for the whole of the
// work.
func TestRelease_LostOrClosedBefore_OutcomeStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		lost, late, open := a.mustTry("lost"), a.mustTry("late"), a.mustTry("open")
		inner, err := open.Reenter()
		if err != nil {
			t.Fatal(err)
		}
		done, err := open.Reenter()
		if err != nil {
			t.Fatal(err)
		}
		orderly := a.mustTry("orderly")
		all, err := a.LockAll(t.Context(), []string{"x", "y"})
		if err != nil {
			t.Fatal(err)
		}
		w.release(done)
		w.release(orderly)
		for _, g := range []*distlock.TryGuard{lost, late, all.All()[0]} {
			w.breaking(b, g.Name())
		}
		wantErr(t, lost.Release(), distlock.ErrLockLost)
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
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
				if err := g.Release(); err != nil {
					t.Errorf("released before, and again: %v", err)
				}
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
			"lost":            {func(*proc) { w.breaking(b, "lost") }, distlock.ErrLockLost},
			"closed":          {func(p *proc) { _ = p.Close(t.Context()) }, distlock.ErrClosed},
			"lost and closed": {func(p *proc) { w.breaking(b, "lost and closed"); _ = p.Close(t.Context()) }, distlock.ErrLockLost},
			"lost, released":  {func(*proc) { w.breaking(b, "lost, released") }, distlock.ErrLockLost},
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
		if err := before.Release(); err != nil {
			t.Errorf("released before Close: %v", err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := after.Release()
		wantErr(t, err, distlock.ErrClosed)
		if errors.Is(err, distlock.ErrLockLost) {
			t.Errorf("nobody took it, and the error says %v", err)
		}
	})
}
