package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// busy runs handlers that take so long, until as many rows as workers are begun and more wait.
func (w *world) busy(p *proc, took time.Duration, cut *atomic.Int64) (ran chan error) {
	w.t.Helper()
	ran = make(chan error, 1)
	go func() {
		quick := 20 // so that many are claimed ahead
		ran <- p.Run(w.t.Context(), func(ctx context.Context, _ *Row[item]) error {
			if quick--; quick >= 0 {
				return nil
			}
			select {
			case <-time.After(took):
				return nil
			case <-ctx.Done():
				cut.Add(1)
				return context.Cause(ctx)
			}
		})
	}()
	w.settle(time.Minute, func(c Counts) bool { return c.Claimed >= 5 })
	time.Sleep(100 * time.Millisecond)
	return ran
}

// It tries to break: a soft stop lets what was begun end, gives back what waits, and claims
// nothing.
func TestStop_HandlersEnd_AndNothingBegins(t *testing.T) {
	for _, batch := range []int{1, 10} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			w.add(0, 100)
			p := w.start(Config{InFlight: 30, Batch: batch})
			var cut atomic.Int64
			ran := w.busy(p, 10*time.Minute, &cut)
			before := w.counts()
			stopped := make(chan error, 1)
			go func() { stopped <- p.Stop(t.Context()) }()
			time.Sleep(time.Second)
			if c := w.counts(); c.Claimed != 1 || c.Ready != 100-1-int64(c.Done) {
				t.Errorf("a second after Stop %+v, before %+v: want only the one that was begun", c, before)
			}
			w.add(100, 5)
			assert.NoErr(t, <-stopped)
			assert.NoErr(t, <-ran)
			c := w.counts()
			if cut.Load() != 0 || c.Claimed != 0 || c.Done != before.Done+1 ||
				w.row(int(c.Done)).Mark.Attempts != 0 {
				t.Errorf("%d handlers were ended; %+v, before %+v", cut.Load(), c, before)
			}
		})
	}
}

// It tries to break: when Stop's context ends the stop is a hard one: handlers are told why, their
// rows are given back uncounted, and Run returns nil.
func TestStop_ContextEnds_EndsHandlers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 100)
		p := w.start(Config{InFlight: 30})
		var cut atomic.Int64
		ran := w.busy(p, time.Hour, &cut)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		err := p.Stop(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		assert.NoErr(t, <-ran)
		if took := time.Since(begun); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("Run ended after %v", took)
		}
		c := w.counts()
		if cut.Load() != 1 || c.Claimed+c.Retrying != 0 || w.row(int(c.Done)).Mark.Attempts != 0 {
			t.Errorf("%d handlers were ended, %+v", cut.Load(), c)
		}
	})
}

// It tries to break: a Stop that comes before Run is no stop that is missed; by hand rows may still
// be claimed; and Stop without a Run, twice, beside Close or with a context that has ended returns.
func TestStop_BeforeRun_AndTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 3)
		p := w.start(Config{InFlight: 2})
		assert.NoErr(t, p.Stop(t.Context()))
		err := p.Run(t.Context(), func(context.Context, *Row[item]) error {
			t.Error("begun")
			return nil
		})
		if err != nil || p.gate.count("mark one", "candidates") != 0 {
			t.Errorf("%v, %v", err, p.gate.tally())
		}
		assert.Equal(t, len(p.take(t, 1)), 1, "%d rows, want %d")
		other := w.start(Config{})
		ran := make(chan error, 1)
		go func() {
			ran <- other.Run(t.Context(), func(ctx context.Context, _ *Row[item]) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		w.settle(time.Minute, func(c Counts) bool { return c.Claimed == 2 })
		first := make(chan error, 1)
		go func() { first <- other.Stop(t.Context()) }()
		synctest.Wait()
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errCut)
		wantErr(t, other.Stop(ended), errCut)
		assert.NoErr(t, errors.Join(<-first, <-ran, other.Stop(ended), other.Close(t.Context())))
		var none context.Context
		wantErr(t, p.Stop(none), ErrConfig)
	})
}

// It tries to break: a Manager that is closed while a handler runs gives the row to nobody else
// before the handler has returned and its row is done; a handler that runs on after the context of
// Close keeps its row until the takeover.
func TestClose_OfTheManager_HandlerRuns_KeepsItsRow(t *testing.T) {
	for how, c := range map[string]struct {
		within, work time.Duration
		batch        int
	}{
		"one":           {5 * time.Minute, 2 * time.Minute, 1},
		"a batch":       {5 * time.Minute, 2 * time.Minute, 10},
		"beyond it":     {10 * time.Second, 2 * time.Minute, 1},
		"still running": {10 * time.Second, 14 * time.Minute, 1},
	} {
		inBubbleSub(t, how, func(t *testing.T, w *world) {
			a := w.start(Config{Batch: c.batch, InFlight: 2 * c.batch})
			w.add(0, 1)
			var calls, working, most atomic.Int32
			handle := func(work time.Duration) handler {
				return func(ctx context.Context, _ *Row[item]) error {
					calls.Add(1)
					if n := working.Add(1); n > most.Load() {
						most.Store(n)
					}
					defer working.Add(-1)
					<-ctx.Done()
					time.Sleep(work)
					return nil
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- a.Run(t.Context(), handle(c.work)) }()
			time.Sleep(time.Minute)
			w.start(Config{}).run(t, handle(0))
			time.Sleep(time.Minute)
			assert.MustEqual(t, calls.Load(), 1, "%d calls, want %d")
			closing := time.Now()
			within, cancel := context.WithTimeout(context.Background(), c.within)
			defer cancel()
			err := a.m.Close(within)
			took := time.Since(closing)
			if took != min(c.within, c.work) || (err == nil) != (c.work < c.within) ||
				err != nil && !strings.Contains(err.Error(), `"claim:`) {
				t.Errorf("Close took %v: %v", took, err)
			}
			wantErr(t, <-ended, distlock.ErrClosed)
			w.settle(time.Hour, allDone(1))
			if calls.Load() != 1 || most.Load() != 1 {
				t.Errorf("%d calls, %d at a time", calls.Load(), most.Load())
			}
		})
	}
}
