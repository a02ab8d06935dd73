package singleton_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

const tenMinutes = 10 * time.Minute

// Manager.Close waits for the current round before it releases the lock.
func TestClose_RoundRuns_KeepsTheLock(t *testing.T) {
	each(t, "", func(t *testing.T, w *world, kind singleton.Kind) {
		const work = 12 * time.Minute
		p, b := w.start(0), w.start(0)
		began := make(chan *distlock.TryGuard, 1)
		ended := p.runs(kind, tenMinutes, func(ctx context.Context, g *distlock.TryGuard) error {
			began <- g
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), distlock.ErrClosed)
			time.Sleep(work)
			return nil
		})
		fence := (<-began).Fence()
		closing := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- p.Close(ctx) }()
		g := assert.Value(b.Lock("a").Lock(b.ctx))(t)
		if took := time.Since(closing); took < work || took > work+time.Second || g.Fence() != fence+1 {
			t.Errorf("fence %d after %d, %v after Close began", g.Fence(), fence, took)
		}
		_ = g.Release()
		wantErr(t, <-ended, distlock.ErrClosed)
		wantErr(t, <-closed, nil)
		assert.Equal(t, w.status().State, singleton.Done, "the state is %q, want %q")
	})
}

// If a process is paused just before a round, and another process takes over during the pause, the
// first process does not begin the round.
func TestRound_StoppedBeforeItBegins_BeginsNothing(t *testing.T) {
	for _, kind := range []singleton.Kind{singleton.KindLoop, singleton.KindSlots, "begin"} {
		inBubbleSub(t, string(kind), func(t *testing.T, w *world) {
			time.Sleep(10 * time.Minute)
			a, b := w.start(0), w.start(0)
			var under, most, stale atomic.Int32
			do := func(_ context.Context, g *distlock.TryGuard) error {
				if g.Err() != nil {
					stale.Add(1)
				}
				if n := under.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer under.Add(-1)
				time.Sleep(5 * time.Minute)
				return nil
			}
			paused := false
			a.store.Set(func(ctx context.Context, _ string, apply func() error) error {
				err := apply()
				list := assert.Value(singleton.List(ctx, w.store))(t)
				if !paused && list[0].State == singleton.Running { // the process is paused here
					paused = true
					a.locks.Kill()
					time.Sleep(40 * time.Minute)
					a.locks.Heal()
				}
				return err
			})
			if kind == "begin" {
				g := assert.Value(a.Lock("a").Lock(a.ctx))(t)
				slot, err := singleton.BeginSlot(a.ctx, a.Manager, g, a.store, hourly)
				if slot != nil {
					t.Error("it is begun")
				}
				wantErr(t, err, distlock.ErrLockLost)
				wantErr(t, g.Release(), distlock.ErrLockLost)
				return
			}
			one := a.runs(kind, tenMinutes, do)
			synctest.Wait()
			other := b.runs(kind, tenMinutes, do)
			time.Sleep(3 * time.Hour)
			if n := stale.Load(); n > 0 || most.Load() > 1 {
				t.Errorf("%d rounds began under a lost guard, %d ran at a time", n, most.Load())
			}
			a.stop()
			b.stop()
			assert.NoErr(t, errors.Join(<-one, <-other))
		})
	}
}

// A round that panics, or returns an error whose Error method panics, fails. The log contains the
// stack. The process continues.
func TestRound_Panics_Fails(t *testing.T) {
	for stack, do := range map[string]func() error{
		"inuse_test.go":         func() error { panic("bang") },
		"fs.(*PathError).Error": func() error { return (*os.PathError)(nil) },
		"net.(*OpError).Unwrap": func() error { return (*net.OpError)(nil) },
	} {
		each(t, stack, func(t *testing.T, w *world, kind singleton.Kind) {
			var log assert.Log
			p := w.startWith(0, func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
			ended := p.runs(kind, tenMinutes, func(context.Context, *distlock.TryGuard) error { return do() })
			time.Sleep(15 * time.Minute)
			s, text := w.status(), log.String()
			if s.State != singleton.Failed || !strings.Contains(s.LastError, "panic") ||
				!strings.Contains(text, "round panicked") || !strings.Contains(text, stack) {
				t.Errorf("status %+v, the log says %s", s, text)
			}
			p.stop()
			wantErr(t, <-ended, nil)
		})
	}
}
