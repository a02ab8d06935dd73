package singleton_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// If the server's clock was ahead, RunSlots logs this once, and ForgetFuture repairs the record.
func TestRunSlots_ServersClockWasAhead_WarnsAndCanBeRepaired(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		step := w.steps()
		var j journal
		var log assert.Log
		p := w.startWith(0, func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
		p.slots(slotting(10*time.Minute, j.nothing))
		time.Sleep(25 * time.Minute)
		step.Store(int64(30 * 24 * time.Hour))
		time.Sleep(2 * time.Minute)
		step.Store(0)
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		const text = "the latest slot is ahead of the server's clock"
		said := log.String()
		if n := strings.Count(said, text); n != 1 || !strings.Contains(said, "singleton.ForgetFuture") {
			t.Errorf("logged %d times: %s", n, said)
		}
		begun := len(j.all())
		for _, want := range []bool{true, false} {
			done := assert.Value(singleton.ForgetFuture(t.Context(), w.store, "a"))(t)
			assert.Equal(t, done, want, "ForgetFuture returned %v, want %v")
		}
		time.Sleep(time.Hour)
		if n := len(j.all()) - begun; n < 5 || n > 7 {
			t.Errorf("%d slots in the hour after the repair", n)
		}
	})
}

// If ForgetFuture repairs the record while a slot runs that began too early, this slot runs once
// more at its time, and not immediately after its end. Another process may run it.
func TestForgetFuture_DuringTheEarlySlot_RunsItAtItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		step := w.steps()
		var j journal
		s := slotting(time.Hour, func(ctx context.Context, s singleton.Slot) error {
			time.Sleep(10 * time.Minute)
			return j.nothing(ctx, s)
		})
		p := w.start(0)
		p.slots(s)
		time.Sleep(90 * time.Minute)
		step.Store(int64(35 * time.Minute)) // the slot of 02:00 begins
		time.Sleep(2 * time.Minute)
		step.Store(0)
		assert.Equal(t, assert.Value(singleton.ForgetFuture(t.Context(), w.store, "a"))(t), true,
			"ForgetFuture returned %v, want %v")
		time.Sleep(20 * time.Minute)
		j.want(t, "01:00 02:00")
		p.stop()
		p.ended.Wait()
		time.Sleep(18 * time.Minute)
		w.start(0).slots(s)
		time.Sleep(62 * time.Minute)
		j.want(t, "01:00 02:00 02:00 03:00")
	})
}

// If the process of a slot dies, the slot is recorded as Interrupted. With Rerun the slot begins
// again instead, with a larger fence, until an attempt returns or MaxAttempts attempts have begun.
// The schedule then continues.
func TestRunSlots_SlotKills_EndsAfterMaxAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		rerun              bool
		most, kills, begun int
		state              singleton.State
	}{
		"without Rerun":      {false, 0, 1, 1, singleton.Interrupted},
		"kills one":          {true, 0, 1, 2, singleton.Done},
		"kills all":          {true, 0, 9, 5, singleton.Interrupted},
		"at most 3 attempts": {true, 3, 9, 3, singleton.Interrupted},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			var first, later journal
			for range c.begun + 2 {
				p := w.start(0)
				s := slotting(2*time.Hour, func(ctx context.Context, s singleton.Slot) error {
					if !s.Time.Equal(w.started.Add(2 * time.Hour)) {
						return later.nothing(ctx, s)
					}
					if first.note(s); len(first.all()) <= c.kills {
						p.kill()
						<-ctx.Done()
					}
					return nil
				})
				s.Rerun, s.MaxAttempts = c.rerun, c.most
				p.slots(s)
			}
			time.Sleep(2*time.Hour + time.Minute)
			if s := w.status(); s.State != singleton.Running || s.Process != first.all()[0].process {
				t.Errorf("status in the slot: %+v", s)
			}
			time.Sleep(109 * time.Minute)
			s := w.status()
			if s.State != c.state || (s.LastError == "") != (c.state == singleton.Done) {
				t.Errorf("status %+v", s)
			}
			all := first.all()
			assert.Equal(t, len(all), c.begun, "%d attempts, want %d")
			for i, e := range all {
				if e.slot.Attempt != i+1 || i > 0 && e.fence <= all[i-1].fence {
					t.Errorf("attempt %d is %+v", i+1, e)
				}
			}
			time.Sleep(time.Hour)
			later.want(t, "04:00")
		})
	}
}

// After a change of the schedule, slots of the new schedule that are before the change do not run.
func TestRunSlots_NewSchedule_MissesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		s := slotting(time.Hour, j.nothing)
		s.Missed = singleton.RunAll
		a := w.start(0)
		a.slots(s)
		time.Sleep(3*time.Hour + 5*time.Minute)
		a.stop()
		a.ended.Wait()
		time.Sleep(2*time.Hour + 26*time.Minute)
		s.Schedule = singleton.Every(10 * time.Minute)
		w.start(0).slots(s)
		time.Sleep(30 * time.Minute)
		j.want(t, "01:00 02:00 03:00 05:40 05:50 06:00")
		assert.Equal(t, w.status().Missed, 0, "%d slots missed, want %d")
	})
}
