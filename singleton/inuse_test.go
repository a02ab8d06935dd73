package singleton_test

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
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

// Manager.Close waits for the current round before it releases the lock. If the context of Close
// ends before the round, the lock stays held until a takeover.
func TestClose_RoundRuns_KeepsTheLock(t *testing.T) {
	const m = time.Minute
	for name, c := range map[string]struct{ within, work, least, most time.Duration }{
		"within its context": {time.Hour, 12 * m, 12 * m, 12*m + time.Second},
		"beyond it":          {10 * time.Second, 5 * m, 15 * m, 17 * m},
	} {
		each(t, name, func(t *testing.T, w *world, kind singleton.Kind) {
			p := w.start(0)
			began := make(chan *distlock.TryGuard, 1)
			ended := p.runs(kind, tenMinutes, func(ctx context.Context, g *distlock.TryGuard) error {
				began <- g
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), distlock.ErrClosed)
				time.Sleep(c.work)
				return nil
			})
			fence := (<-began).Fence()
			closing := time.Now()
			next := make(chan time.Duration, 1)
			b := w.start(0)
			go func() {
				g, err := b.Lock("a").Lock(b.ctx)
				assert.NoErr(t, err)
				next <- time.Since(closing)
				if g.Fence() != fence+1 {
					t.Errorf("fence %d after %d", g.Fence(), fence)
				}
				_ = g.Release()
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), c.within)
			defer cancel()
			err := p.Close(ctx)
			took := time.Since(closing)
			if (err == nil) != (c.work < c.within) || took != min(c.work, c.within) {
				t.Errorf("Close took %v: %v", took, err)
			}
			if took := <-next; took < c.least || took > c.most {
				t.Errorf("the next holder has the lock %v after Close began, want %v", took, c.least)
			}
			wantErr(t, <-ended, distlock.ErrClosed)
			if s := w.status(); s.State != singleton.Done {
				t.Errorf("status %+v, want that of a round that is done", s)
			}
		})
	}
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
			begun := 0
			a.store.keep = func(c singleton.Change) time.Duration {
				if slices.Contains(c.Dates, "begun") {
					begun++
				}
				return 0
			}
			a.store.set(func(ctx context.Context, apply func() error) error {
				err := apply()
				if begun == 1 { // the process is paused here
					begun++
					a.locks.Set(refused)
					time.Sleep(40 * time.Minute)
					a.locks.Set(nil)
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

// The log contains the stack of a round that panicked.
func TestRound_Panics_TheStackIsLogged(t *testing.T) {
	each(t, "", func(t *testing.T, w *world, kind singleton.Kind) {
		var log assert.Log
		p := w.startWith(0, func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
		do := func(context.Context, *distlock.TryGuard) error { panic("bang") }
		ended := p.runs(kind, tenMinutes, do)
		time.Sleep(15 * time.Minute)
		p.stop()
		wantErr(t, <-ended, nil)
		text := log.String()
		if !strings.Contains(text, "bang") || !strings.Contains(text, "inuse_test.go") {
			t.Errorf("the log says %s", text)
		}
	})
}

// If a round returns an error whose Error method panics, the round fails and the process continues.
func TestRound_ErrorIsANilPointer_Fails(t *testing.T) {
	each(t, "", func(t *testing.T, w *world, kind singleton.Kind) {
		p := w.start(0)
		var round atomic.Int32
		ended := p.runs(kind, tenMinutes, func(context.Context, *distlock.TryGuard) error {
			return []error{(*os.PathError)(nil), (*net.OpError)(nil)}[round.Add(1)%2]
		})
		time.Sleep(15 * time.Minute)
		p.stop()
		wantErr(t, <-ended, nil)
	})
}
