package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// Several calls of RunNow start exactly one round, within a minute.
func TestRunNow_FromAnotherProcess_OneRoundSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const every = 6 * time.Hour
		var j journal
		loop := looping(every, func(ctx context.Context, g *distlock.TryGuard) error {
			defer time.Sleep(time.Second)
			return j.round(ctx, g)
		})
		for range 3 {
			w.start(0).loop(loop)
		}
		ask := singleton.Loop{Name: "a", Store: w.store}
		time.Sleep(time.Hour)
		requested := time.Now()
		for range 10 {
			assert.Must(t, ask.RunNow(t.Context()))
		}
		time.Sleep(2 * time.Hour)
		assert.MustEqual(t, len(j.all()), 2, "%d rounds, want %d")
		time.Sleep(2*every - 4*time.Hour)
		all := j.all()
		if len(all) != 3 || all[1].at.Sub(requested) > time.Minute || all[2].at.Sub(all[1].at) != every {
			t.Errorf("begun %+v, requested at %v", all, requested)
		}
	})
}

// RunNow starts a round even if the reply to the write that begins the round is lost.
func TestRunNow_ReplyToTheBeginningLost_StillRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		p := w.start(0)
		p.loop(looping(24*time.Hour, j.round))
		time.Sleep(time.Minute)
		assert.MustEqual(t, len(j.all()), 1, "%d rounds, want %d")
		assert.Must(t, singleton.Loop{Name: "a", Store: w.store}.RunNow(t.Context()))
		var lost atomic.Bool
		p.store.Set(func(_ context.Context, _ string, apply func() error) error {
			err := apply()
			if !lost.Load() && w.status().State == singleton.Running {
				lost.Store(true)
				return errors.New("the reply is lost")
			}
			return err
		})
		time.Sleep(10 * time.Minute)
		assert.Equal(t, lost.Load(), true, "a reply was lost: %v, want %v")
		assert.Equal(t, len(j.all()), 2, "%d rounds, want %d")
	})
}

// If RunNow is called during a round, the requested round begins after that round, even if the
// process of that round dies.
func TestRunNow_WhileARoundRuns_FollowsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		var runs, most atomic.Int32
		loop := looping(24*time.Hour, func(ctx context.Context, g *distlock.TryGuard) error {
			most.Store(max(most.Load(), runs.Add(1)))
			defer runs.Add(-1)
			clock.Sleep(clock.System(), 30*time.Minute, ctx.Done())
			return j.round(ctx, g)
		})
		a := w.start(0)
		a.loop(loop)
		ask := singleton.Loop{Name: "a", Store: w.store}
		ended := func(n int) {
			t.Helper()
			if got := len(j.all()); got != n || most.Load() != 1 {
				t.Errorf("%d rounds have ended, %d ran at a time; want %d, 1", got, most.Load(), n)
			}
		}
		time.Sleep(time.Minute)
		assert.Must(t, ask.RunNow(t.Context()))
		time.Sleep(30 * time.Minute)
		ended(1)
		w.start(0).loop(loop)
		assert.Must(t, ask.RunNow(t.Context()))
		a.kill()
		time.Sleep(2 * time.Hour)
		ended(3)
		past := w.status().Runs
		if len(past) != 3 || past[1].State != singleton.Interrupted || past[2].State != singleton.Done ||
			past[1].Process == past[2].Process || past[2].Took != 30*time.Minute {
			t.Errorf("runs %+v", past)
		}
	})
}

// RunNow of a schedule begins an additional slot. The regular slots keep their times.
func TestRunNow_OfASchedule_IsASlotMore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		w.start(0).slots(slotting(6*time.Hour, j.nothing))
		ask := singleton.Slots{Name: "a", Store: w.store}
		time.Sleep(7*time.Hour - 30*time.Second)
		assert.Must(t, ask.RunNow(t.Context()))
		time.Sleep(17*time.Hour + 31*time.Second)
		j.want(t, "06:00 07:00 12:00 18:00 00:00")
		s := w.status()
		if s.Missed != 0 || len(s.Runs) != 5 || !s.Runs[4].Slot.Equal(j.all()[4].slot.Time) ||
			s.Runs[4].Attempt != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// RunNow and ForgetFuture return an error if the name has no record, if the record has another
// kind, or if an argument is missing.
func TestRunNow_NothingToAsk_SaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start(0).loop(singleton.Loop{Name: "a", Every: time.Hour, Do: nothing})
		time.Sleep(time.Minute)
		forget := func(store singleton.Store, name string) error {
			return assert.Err(singleton.ForgetFuture(t.Context(), store, name))
		}
		for err, want := range map[error]error{
			forget(w.store, "b"): singleton.ErrNeverRan,
			forget(w.store, "a"): singleton.ErrBadArgument,
			forget(nil, "a"):     singleton.ErrBadArgument,
			singleton.Loop{Name: "b", Store: w.store}.RunNow(t.Context()):  singleton.ErrNeverRan,
			singleton.Slots{Name: "a", Store: w.store}.RunNow(t.Context()): singleton.ErrBadArgument,
			singleton.Loop{Name: "a"}.RunNow(t.Context()):                  singleton.ErrBadArgument,
			singleton.Loop{Store: w.store}.RunNow(t.Context()):             singleton.ErrBadArgument,
		} {
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	})
}

// A Status contains the latest RunsKept rounds, with their times, process and error.
func TestStatus_Runs_TheLatestTwenty(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var begun atomic.Int64
		p := w.start(0)
		p.loop(singleton.Loop{Name: "a", Every: time.Minute, BackOff: time.Minute,
			Do: func(context.Context, *distlock.TryGuard) error {
				n := begun.Add(1)
				time.Sleep(time.Duration(n) * time.Second)
				if n%2 == 0 {
					return fmt.Errorf("error %d", n)
				}
				return nil
			}})
		time.Sleep(50*time.Minute + 10*time.Second)
		s := w.status()
		if s.State != singleton.Running || len(s.Runs) != singleton.RunsKept {
			t.Fatalf("%+v", s)
		}
		for i, run := range s.Runs {
			no := int(begun.Load()) - singleton.RunsKept + 1 + i
			took := time.Duration(no) * time.Second
			want := singleton.PastRun{State: singleton.Done, Process: p.Process(), Fence: s.Fence,
				Begun: run.Begun, Ended: run.Begun.Add(took), Took: took}
			if no%2 == 0 {
				want.State, want.Error = singleton.Failed, fmt.Sprintf("error %d", no)
			}
			if i == singleton.RunsKept-1 {
				if run.State != singleton.Running || !run.Ended.IsZero() || run.Took != 0 {
					t.Errorf("the one that runs: %+v", run)
				}
				continue
			}
			assert.Equal(t, run, want, "%+v, want %+v")
		}
	})
}
