package singleton_test

import (
	"context"
	"fmt"
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

// If the process of a slot dies in each of MaxAttempts attempts, the slot is recorded as
// Interrupted. The schedule then continues.
func TestRunSlots_SlotKills_EndsAfterMaxAttempts(t *testing.T) {
	for most, want := range map[int]int32{0: 5, 1: 1, 3: 3} {
		inBubbleSub(t, fmt.Sprint("at most ", most), func(t *testing.T, w *world) {
			var attempts, later atomic.Int32
			first := w.started.Add(2 * time.Hour)
			for range 7 {
				p := w.start(0)
				p.slots(singleton.Slots{Name: "a", Schedule: singleton.Every(2 * time.Hour), Rerun: true,
					MaxAttempts: most, Do: func(ctx context.Context, s singleton.Slot) error {
						if s.Time.Equal(first) {
							attempts.Add(1)
							p.kill()
							<-ctx.Done()
						} else {
							later.Add(1)
						}
						return nil
					}})
			}
			time.Sleep(3*time.Hour + 50*time.Minute)
			s := w.status()
			if attempts.Load() != want || s.State != singleton.Interrupted || s.LastError == "" {
				t.Errorf("MaxAttempts %d: begun %d times, %+v", most, attempts.Load(), s)
			}
			time.Sleep(time.Hour)
			if later.Load() != 1 {
				t.Errorf("MaxAttempts %d: the next slot was begun %d times", most, later.Load())
			}
		})
	}
	inBubbleSub(t, "negative", func(t *testing.T, w *world) {
		p := w.start(0)
		s := slotting(time.Hour, (&journal{}).nothing)
		s.Store, s.MaxAttempts = w.store, -1
		wantErr(t, singleton.RunSlots(t.Context(), p.Manager, s), singleton.ErrBadArgument)
	})
}

// After a change of the schedule, slots of the new schedule that are before the change do not run.
func TestRunSlots_NewSchedule_MissesNothing(t *testing.T) {
	for _, c := range []struct {
		then time.Duration
		want string
	}{
		{10 * time.Minute, "01:00 02:00 03:00 05:40 05:50 06:00"},
		{time.Hour, "01:00 02:00 03:00 04:00 05:00 06:00"},
	} {
		inBubbleSub(t, "every hour, then every "+c.then.String(), func(t *testing.T, w *world) {
			var j journal
			s := slotting(time.Hour, j.nothing)
			s.Missed = singleton.RunAll
			a := w.start(0)
			a.slots(s)
			time.Sleep(3*time.Hour + 5*time.Minute)
			a.stop()
			a.ended.Wait()
			time.Sleep(2*time.Hour + 26*time.Minute)
			s.Schedule = singleton.Every(c.then)
			w.start(0).slots(s)
			time.Sleep(30 * time.Minute)
			j.want(t, c.want)
			assert.Equal(t, w.status().Missed, 0, "%d slots missed, want %d")
		})
	}
}

// ForgetFuture returns an error if the name belongs to a loop, or if it has no record.
func TestForgetFuture_OthersThanSchedules_AreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, err := singleton.ForgetFuture(t.Context(), w.store, "a")
		assert.Is(t, err, singleton.ErrNeverRan)
		p := w.start(0)
		p.loop(looping(time.Minute, nothing))
		time.Sleep(time.Second)
		_, err = singleton.ForgetFuture(t.Context(), w.store, "a")
		assert.Is(t, err, singleton.ErrBadArgument)
		_, err = singleton.ForgetFuture(t.Context(), nil, "a")
		assert.Is(t, err, singleton.ErrBadArgument)
	})
}
