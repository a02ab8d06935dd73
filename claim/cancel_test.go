package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: a row that is cancelled by another process belongs to its worker until that
// returns; its handler hears of it within Tend, and why, and whatever it returns the row is dead.
func TestCancel_RowThatIsWorkedOn(t *testing.T) {
	for name, end := range map[string]handler{
		"done":      atOnce,
		"error":     func(ctx context.Context, _ *Row[item]) error { return ctx.Err() },
		"discarded": func(ctx context.Context, _ *Row[item]) error { return Discard(ctx.Err()) },
		"by hand": func(ctx context.Context, row *Row[item]) error {
			err := row.Done(context.WithoutCancel(ctx))
			if !errors.Is(err, ErrLost) || !errors.Is(err, ErrCancelled) {
				t.Errorf("done: %v", err)
			}
			return err
		},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 1)
			worker, other := w.start(Config{}), w.start(Config{})
			heard := make(chan time.Time, 1)
			stop := worker.run(t, func(ctx context.Context, row *Row[item]) error {
				<-ctx.Done()
				heard <- time.Now()
				cause := context.Cause(ctx)
				wantErr(t, cause, ErrCancelled)
				if !strings.Contains(cause.Error(), "cancelled") || row.Err() == nil {
					t.Errorf("the cause is %v, the row's error %v", cause, row.Err())
				}
				return end(ctx, row)
			})
			w.settle(time.Minute, func(c Counts) bool { return c.Claimed == 1 })
			sent := other.gate.count("cancel", "current")
			assert.Must(t, other.Cancel(t.Context(), 0))
			assert.Equal(t, other.gate.count("cancel", "current")-sent, 1, "%d commands, want %d")
			cancelled := time.Now()
			if c := w.counts(); c.Claimed != 1 {
				t.Errorf("%+v", c)
			}
			if took := (<-heard).Sub(cancelled); took > 7*time.Second {
				t.Errorf("heard after %v", took)
			}
			time.Sleep(time.Minute)
			stop()
			if m := w.row(0).Mark; m.State != rows.Dead || m.Error != "cancelled" || m.DeadAt.IsZero() {
				t.Errorf("%+v", m)
			}
		})
	}
}

// It tries to break: a handler that fails before its process has looked has its cancelled row tried
// again, or left retrying until its pause is over.
func TestCancel_HandlerFailsAtOnce_IsDead(t *testing.T) {
	for name, end := range map[string]error{"fails": errCut, "snoozes": Snooze(5 * time.Hour)} {
		for _, batch := range []int{1, 2} {
			inBubbleSub(t, fmt.Sprint(name, " ", batch), func(t *testing.T, w *world) {
				w.add(0, 1)
				worker := w.start(Config{Backoff: time.Hour, Batch: batch, Tend: time.Hour})
				other := w.start(Config{})
				stop := worker.run(t, func(context.Context, *Row[item]) error {
					assert.NoErr(t, other.Cancel(t.Context(), 0))
					return end
				})
				time.Sleep(10 * time.Second)
				stop()
				if m := w.row(0).Mark; m.State != rows.Dead || m.Error != rows.Cancelled || m.Cancelled {
					t.Errorf("%+v", m)
				}
			})
		}
	}
}

// A row that waits, in the collection or in a buffer, is never begun once it is cancelled. One that
// is over, or not there, is told so.
func TestCancel_RowsThatWaitOrAreOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 60)
		p := w.start(Config{Poll: time.Minute, Batch: 10, InFlight: 30})
		quick, begun := 20, [60]atomic.Bool{}
		stop := p.run(t, func(_ context.Context, row *Row[item]) error {
			begun[row.Doc.ID].Store(true)
			if quick--; quick == 0 {
				time.Sleep(time.Minute)
			}
			return nil
		})
		w.settle(time.Minute, func(c Counts) bool { return c.Done == 19 && c.Claimed > 2 })
		waits := -1
		for _, row := range w.rows.All() {
			if row.Mark.State == rows.Claimed && !begun[row.ID.AsInt64()].Load() {
				waits = int(row.ID.AsInt64())
			}
		}
		assert.Must(t, errors.Join(p.Cancel(t.Context(), waits), p.Cancel(t.Context(), 59)))
		time.Sleep(10 * time.Minute)
		stop()
		if begun[waits].Load() || begun[59].Load() || w.counts() != (Counts{Dead: 2, Done: 58}) {
			t.Errorf("begun %v and %v, %+v", begun[waits].Load(), begun[59].Load(), w.counts())
		}
		for id, want := range map[any]string{waits: "is dead", 0: "is done", "none": "there is no row"} {
			err := p.Cancel(t.Context(), id)
			wantErr(t, err, ErrOver)
			if !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		}
		if err := p.Cancel(t.Context(), make(chan int)); err == nil {
			t.Error("a channel was taken for an _id")
		}
	})
}

// It tries to break: a cancelled row whose process dies is worked on again.
func TestCancel_ProcessDies_NobodyBeginsItAgain(t *testing.T) {
	for name, batch := range map[string]int{"alone": 1, "batch": 10} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 1)
			var begun atomic.Int64
			handle := func(ctx context.Context, _ *Row[item]) error {
				begun.Add(1)
				<-ctx.Done()
				return errCut
			}
			worker := w.start(Config{Batch: batch, Tend: time.Hour})
			stop := worker.run(t, handle)
			w.settle(time.Minute, func(c Counts) bool { return c.Claimed == 1 })
			dead := make(chan Info, 2)
			other := w.start(Config{Batch: batch, OnDead: func(_ context.Context, row Info) { dead <- row }})
			stopOther := other.run(t, handle)
			assert.Must(t, other.Cancel(t.Context(), 0))
			worker.cut()
			w.settle(time.Hour, func(c Counts) bool { return c.Dead == 1 })
			stopOther()
			stop()
			if m := w.row(0).Mark; begun.Load() != 1 || m.Error != rows.Cancelled || m.Cancelled {
				t.Errorf("begun %d times, %+v", begun.Load(), m)
			}
			if row := <-dead; row.LastError != rows.Cancelled || len(dead) > 0 {
				t.Errorf("OnDead was told %+v, and %d more", row, len(dead))
			}
		})
	}
}

// It tries to break: by Claim a cancelled row is given to somebody else.
func TestCancel_GivenBack_IsNotClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		a, b := w.start(Config{}), w.start(Config{})
		row := a.take(t, 1)[0]
		assert.Must(t, errors.Join(b.Cancel(t.Context(), 0), row.GiveBack(t.Context())))
		time.Sleep(time.Minute)
		assert.Equal(t, len(b.take(t, 1)), 0, "%d rows are given, want %d")
		w.want(Counts{Dead: 1})
	})
}
