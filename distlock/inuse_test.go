package distlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/leading"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// whileClosing closes a process that runs Do, while another process waits for the lock. The
// parameter within is the time limit of Close. The parameter work is the time for which the
// function given to Do runs after its context has ended. The returned durations count from the
// start of Do.
func whileClosing(t *testing.T, w *world, within, work time.Duration) (
	p *proc, ended, closed, did, next time.Duration, closing, doing error,
) {
	t.Helper()
	p, b := w.start(nil), w.start(nil)
	plain := p.MustTry("plain")
	start := time.Now()
	began, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		doing = p.Do(context.Background(), "a", func(ctx context.Context, g *distlock.TryGuard) error {
			close(began)
			<-ctx.Done()
			ended = time.Since(start)
			wantErr(t, context.Cause(ctx), distlock.ErrClosed)
			wantErr(t, g.Err(), distlock.ErrClosed)
			time.Sleep(work)
			return nil
		})
		did = time.Since(start)
	}()
	<-began
	got := make(chan struct{})
	go func() {
		defer close(got)
		g, err := b.Lock("a").Lock(context.Background())
		if next = time.Since(start); err != nil {
			t.Error(err)
		}
		_ = g.Release()
	}()
	time.Sleep(2 * time.Second)
	freed := make(chan time.Duration, 1)
	go func() {
		g, err := b.Lock("plain").Lock(context.Background())
		assert.NoErr(t, err)
		freed <- time.Since(start)
		_ = g.Release()
	}()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	closing = p.Close(ctx)
	closed = time.Since(start)
	<-over
	<-got
	assert.Equal(t, <-freed, 2*time.Second,
		"a guard without a function was released after %v, want at once (%v)")
	_ = plain.Release()
	return p, ended, closed, did, next, closing, doing
}

// Close waits until the function given to Do returns, and the process pings meanwhile. Then Close
// releases the lock, and the next waiter acquires it.
func TestClose_FunctionRuns_IsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const work = 40 * time.Minute
		p, ended, closed, did, next, closing, doing := whileClosing(t, w, time.Hour, work)
		const end = 2*time.Second + work
		if ended != 2*time.Second || closed != end || did != end || next != end {
			t.Errorf("the context ended at %v, Close at %v, Do at %v, the next held it at %v; want "+
				"2s and three times %v", ended, closed, did, next, end)
		}
		assert.NoErr(t, closing, "Close")
		wantErr(t, doing, distlock.ErrClosed)
		if n := p.Store.Count(fault.Ping); n < 75 {
			t.Errorf("%d pings while the function ran for %v", n, work)
		}
	})
}

// If the function given to Do runs on, Close returns when the context of Close ends. The error
// names the lock that stays held. Another process acquires that lock after the takeover time.
func TestClose_FunctionRunsOn_IsLeftToTheTakeover(t *testing.T) {
	for name, work := range map[string]time.Duration{"returns": time.Minute, "runs on": time.Hour} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			_, ended, closed, did, next, closing, doing := whileClosing(t, w, 10*time.Second, work)
			if ended != 2*time.Second || closed != 12*time.Second || did != 2*time.Second+work {
				t.Errorf("the context ended at %v, Close at %v, Do at %v", ended, closed, did)
			}
			if next < 15*time.Minute || next > 17*time.Minute {
				t.Errorf("the next held it at %v, want the takeover time after the last ping", next)
			}
			wantErr(t, closing, context.DeadlineExceeded)
			text := fmt.Sprint(closing)
			if !strings.Contains(text, `"a"`) || strings.Contains(text, `"plain"`) {
				t.Errorf("Close says %q, want the lock named that stays held, and no other", text)
			}
			wantErr(t, doing, distlock.ErrClosed)
		})
	}
}

// If Close releases the lock before Do has called the given function, Do never calls the function.
func TestDo_ClosedBeforeItBegins_CallsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(func(c *distlock.Config) {
			c.Observer = observerFunc(func(e distlock.Event) {
				if e.Kind == distlock.EventAcquired { // after the reply and before the function
					time.Sleep(time.Second)
				}
			})
		})
		done := make(chan error, 1)
		go func() {
			done <- p.Do(context.Background(), "a", func(context.Context, *distlock.TryGuard) error {
				t.Error("called")
				return nil
			})
		}()
		synctest.Wait()
		assert.NoErr(t, p.Close(t.Context()))
		assert.Is(t, <-done, distlock.ErrClosed)
	})
}

// If a function that was given to Do calls Close, Close does not wait for that function:
//   - If Close gets the context of the function, it releases the lock immediately, in any
//     goroutine.
//   - If Close gets another context, it returns after one CommandTimeout and names the
//     lock.
func TestClose_ByTheFunction_DoesNotHang(t *testing.T) {
	other := context.Background()
	for name, c := range map[string]struct {
		beside bool
		with   context.Context // nil for the context of the function
		took   time.Duration
	}{
		"with its context":                          {false, nil, 0},
		"with its context in another goroutine":     {true, nil, 0},
		"with another context in another goroutine": {true, other, commandTimeout},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, b := w.start(nil), w.start(nil)
			work := func(ctx context.Context, g *distlock.TryGuard) error {
				process, with := p.Process(), ctx
				if c.with != nil {
					with = c.with
				}
				start, closed := time.Now(), make(chan error, 1)
				closing := func() { closed <- p.Close(with) }
				if c.beside {
					go closing()
				} else {
					closing()
				}
				select {
				case err := <-closed:
					if took := time.Since(start); took != c.took || (err == nil) != (c.with == nil) ||
						err != nil && !strings.Contains(err.Error(), `"a"`) {
						t.Errorf("Close took %v, want %v: %v", took, c.took, err)
					}
				case <-time.After(time.Hour):
					t.Error("Close waits for the function that called it")
					return nil
				}
				wantErr(t, g.Err(), distlock.ErrClosed)
				ping := w.Mem.Document(catalog.PingsCollection, process)
				if (ping != nil) != (c.with != nil) {
					t.Errorf("the ping document is %s", ping)
				}
				_, err := b.Lock("a").Lock(context.Background())
				assert.NoErr(t, err, "the next holder")
				if took := time.Since(start); (took > 15*time.Minute) != (c.with != nil) {
					t.Errorf("another holds it after %v", took)
				}
				return nil
			}
			wantErr(t, p.Do(context.Background(), "a", work), distlock.ErrClosed)
		})
	}
}

// If a function holds two nested locks and passes its own context to Close, Close does not wait for
// that function. Close waits for another function that uses the outer guard.
func TestClose_ByOneFunctionOfTwo_WaitsForTheOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, b := w.start(nil), w.start(nil)
		const work = commandTimeout / 2
		free := func(name string) error {
			_, err := b.Try(name)
			return err
		}
		outer := func(ctx context.Context, g *distlock.TryGuard) error {
			done := p.Internal(leading.Key{}).Use(g)
			time.AfterFunc(work, func() {
				wantErr(t, free("outer"), distlock.ErrHeld)
				done()
			})
			return p.Do(ctx, "inner", func(ctx context.Context, _ *distlock.TryGuard) error {
				start := time.Now()
				assert.NoErr(t, p.Close(ctx), "Close")
				assert.Equal(t, time.Since(start), work, "Close took %v, want %v")
				assert.NoErr(t, free("outer"), "outer")
				assert.NoErr(t, free("inner"), "inner")
				return nil
			})
		}
		wantErr(t, p.Do(context.Background(), "outer", outer), distlock.ErrClosed)
	})
}
