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
	"mongodlm/internal/test/fault"
	"mongodlm/singleton"
)

// running runs a loop or slots of every ten minutes in a process, and returns its error.
func running(p *process, kind string, do func(context.Context, *distlock.TryGuard) error) <-chan error {
	ended := make(chan error, 1)
	p.ended.Go(func() {
		if kind == "loop" {
			ended <- singleton.Run(p.ctx, p.Manager, singleton.Loop{Name: "a", Store: p.store, Every: 10 * time.Minute, Do: do})
			return
		}
		ended <- singleton.RunSlots(p.ctx, p.Manager, singleton.Slots{Name: "a", Store: p.store,
			Schedule: singleton.Every(10 * time.Minute),
			Do:       func(ctx context.Context, s singleton.Slot) error { return do(ctx, s.Guard) }})
	})
	return ended
}

// It tries to break: a Manager that is closed while a round runs gives its lock away only when the
// round is over, whether it minds its context or not, and its end is recorded. A round that goes on
// after the context of Close keeps the lock until the takeover.
func TestClose_RoundRuns_KeepsTheLock(t *testing.T) {
	for name, c := range map[string]struct{ within, work, least, most time.Duration }{
		"within its context": {time.Hour, 12 * time.Minute, 12 * time.Minute, 12*time.Minute + time.Second},
		"beyond it":          {10 * time.Second, 5 * time.Minute, 15 * time.Minute, 17 * time.Minute},
	} {
		for _, kind := range []string{"loop", "slots"} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					p := w.start(0)
					began := make(chan *distlock.TryGuard, 1)
					ended := running(p, kind, func(ctx context.Context, g *distlock.TryGuard) error {
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
					if err := p.Close(ctx); (err == nil) != (c.work < c.within) || time.Since(closing) != min(c.work, c.within) {
						t.Errorf("Close took %v: %v", time.Since(closing), err)
					}
					if took := <-next; took < c.least || took > c.most {
						t.Errorf("the next holder has the lock %v after Close began, want %v", took, c.least)
					}
					wantErr(t, <-ended, distlock.ErrClosed)
					if s := w.status(); s.State != singleton.Done {
						t.Errorf("status %+v, want that of a round that is done", s)
					}
				})
			})
		}
	}
}

// It tries to break: a process that is stopped between the answer that says begun and the call of
// Do begins nothing when it goes on: another holder has gone on meanwhile.
func TestRound_StoppedBeforeItBegins_BeginsNothing(t *testing.T) {
	for _, kind := range []string{"loop", "slots", "begin"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
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
					for _, date := range c.Dates {
						if date == "begun" {
							begun++
						}
					}
					return 0
				}
				a.store.set(func(ctx context.Context, apply func() error) error {
					err := apply()
					if begun == 1 { // it stops here, with its heartbeat
						begun++
						a.locks.Set(func(_ context.Context, call fault.Call, _ func() error) error { return fault.Refused(call.Op) })
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
				one := running(a, kind, do)
				synctest.Wait()
				other := running(b, kind, do)
				time.Sleep(3 * time.Hour)
				if n := stale.Load(); n > 0 || most.Load() > 1 {
					t.Errorf("%d rounds began under a lost guard, %d ran at a time", n, most.Load())
				}
				a.stop()
				b.stop()
				assert.NoErr(t, errors.Join(<-one, <-other))
			})
		})
	}
}

// It tries to break: whoever reads the log finds where a round panicked.
func TestRound_Panics_TheStackIsLogged(t *testing.T) {
	for _, kind := range []string{"loop", "slots"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var log assert.Log
				p := w.startWith(0, func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
				ended := running(p, kind, func(context.Context, *distlock.TryGuard) error { panic("bang") })
				time.Sleep(15 * time.Minute)
				p.stop()
				wantErr(t, <-ended, nil)
				if text := log.String(); !strings.Contains(text, "bang") || !strings.Contains(text, "inuse_test.go") {
					t.Errorf("the log says %s", text)
				}
			})
		})
	}
}

// It tries to break: an error whose text is a panic, as of a nil pointer, or what it wraps, ends
// the process.
func TestRound_ErrorIsANilPointer_Fails(t *testing.T) {
	for _, kind := range []string{"loop", "slots"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := w.start(0)
				var round atomic.Int32
				ended := running(p, kind, func(context.Context, *distlock.TryGuard) error {
					return []error{(*os.PathError)(nil), (*net.OpError)(nil)}[round.Add(1)%2]
				})
				time.Sleep(15 * time.Minute)
				p.stop()
				wantErr(t, <-ended, nil)
			})
		})
	}
}
