package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// Each slot runs once, when it is due by the server's clock, although the clocks of the processes
// differ.
func TestRunSlots_ClocksHoursApart_EachSlotOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		time.Sleep(time.Minute)
		var ps []*process
		for i := range 5 {
			p := w.start(time.Duration(i-2) * time.Hour)
			p.slots(slotting(10*time.Minute, j.nothing))
			ps = append(ps, p)
		}
		time.Sleep(30 * time.Minute)
		ps[0].stop() // the next holder continues
		time.Sleep(30*time.Minute + time.Second)
		j.want(t, "00:10 00:20 00:30 00:40 00:50 01:00")
		for _, e := range j.all() {
			if late := e.at.Sub(e.slot.Time); late < 0 || late > time.Second || e.slot.Attempt != 1 {
				t.Errorf("slot %v ran %v late, attempt %d", e.slot.Time, late, e.slot.Attempt)
			}
		}
		if s := w.status(); s.Rounds != 6 || s.Missed != 0 ||
			!s.Next.Equal(w.started.Add(70*time.Minute)) {
			t.Errorf("status %+v", s)
		}
	})
}

// RunSlots sends one command a minute between slots, and three commands for each slot.
func TestRunSlots_Commands(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		p := w.start(0)
		p.slots(slotting(24*time.Hour, j.nothing))
		time.Sleep(time.Hour + time.Second)
		before := p.store.Sent()
		time.Sleep(time.Hour)
		assert.Equal(t, p.store.Sent()-before, 60, "%d commands in an hour without slots, want %d")
		p.stop()
		p.ended.Wait()
		q := w.start(0)
		q.slots(singleton.Slots{Name: "b", Schedule: singleton.Every(10 * time.Second), Do: j.nothing})
		time.Sleep(time.Minute + time.Second)
		before = q.store.Sent()
		time.Sleep(time.Hour)
		if n := q.store.Sent() - before; n != 3*360 {
			t.Errorf("%d commands for 360 slots, want 3 each", n)
		}
	})
}

// Slots.Missed determines how many of the missed slots run.
func TestRunSlots_Missed_AsAsked(t *testing.T) {
	type s = singleton.Slots
	for name, c := range map[string]struct {
		s    s
		want string
		lost int64
	}{
		"run once":       {s{}, "00:10 01:00 01:10", 4},
		"skip":           {s{Missed: singleton.Skip}, "00:10 01:10", 5},
		"in grace":       {s{Missed: singleton.Skip, Grace: 6 * time.Minute}, "00:10 01:00 01:10", 4},
		"run all":        {s{Missed: singleton.RunAll}, "00:10 00:20 00:30 00:40 00:50 01:00 01:10", 0},
		"all, at most 2": {s{Missed: singleton.RunAll, MostMissed: 2}, "00:10 00:50 01:00 01:10", 3},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			var j journal
			c.s.Name, c.s.Schedule, c.s.Do = "a", singleton.Every(10*time.Minute), j.nothing
			p := w.start(0)
			p.slots(c.s)
			time.Sleep(15 * time.Minute)
			p.stop()
			p.ended.Wait()
			time.Sleep(50 * time.Minute)
			w.start(0).slots(c.s)
			time.Sleep(6 * time.Minute)
			j.want(t, c.want)
			if s := w.status(); s.Missed != c.lost {
				t.Errorf("%d missed, want %d", s.Missed, c.lost)
			}
		})
	}
}

// If the reply to one command is lost, a slot still runs exactly once and is recorded as Done.
func TestRunSlots_AnswersLost_RunsOnce(t *testing.T) {
	for lost := range 16 {
		inBubbleSub(t, fmt.Sprint(lost), func(t *testing.T, w *world) {
			var j journal
			p := w.start(0)
			p.slots(slotting(30*time.Second, j.nothing))
			time.Sleep(20 * time.Second)
			p.store.lose(lost/2, 1, lost%2 == 0)
			time.Sleep(2 * time.Minute)
			j.want(t, "00:00 00:01 00:01 00:02")
			if s := w.status(); s.Rounds != 4 || s.State != singleton.Done || s.LastError != "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A slot that fails does not run again. Slots that are due during another slot, or while the
// settings stop the schedule, are missed.
func TestRunSlots_FailsAndTakesLongAndStops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		p := w.start(0)
		p.slots(slotting(10*time.Minute, func(_ context.Context, s singleton.Slot) error {
			j.note(s)
			switch len(j.all()) {
			case 1:
				return errors.New("boom")
			case 2:
				panic("bang")
			case 3:
				time.Sleep(25 * time.Minute)
			}
			return nil
		}))
		time.Sleep(15 * time.Minute)
		if s := w.status(); s.State != singleton.Failed || s.LastError != "boom" {
			t.Errorf("status %+v", s)
		}
		time.Sleep(10 * time.Minute)
		if s := w.status(); s.State != singleton.Failed || !strings.Contains(s.LastError, "bang") ||
			s.Failures != 2 {
			t.Errorf("status %+v", s)
		}
		time.Sleep(40 * time.Minute) // 01:05
		w.settings("a", stopped(true))
		time.Sleep(20 * time.Minute) // 01:25
		w.settings("a", stopped(false))
		time.Sleep(10 * time.Minute)
		j.want(t, "00:10 00:20 00:30 00:50 01:00 01:20 01:30")
		if s := w.status(); s.State != singleton.Done || s.LastError != "" || s.Missed != 2 {
			t.Errorf("status %+v", s)
		}
	})
}

type timetable []time.Time

func (s timetable) Next(t time.Time) time.Time {
	for _, slot := range s {
		if slot.After(t) {
			return slot
		}
	}
	return time.Time{}
}

type nextFunc func(time.Time) time.Time

func (f nextFunc) Next(t time.Time) time.Time { return f(t) }

// RunSlots refuses a schedule without slots, and a schedule whose times do not increase.
func TestRunSlots_BadSchedules_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		p := w.start(0)
		run := func(s singleton.Slots) error {
			s.Name, s.Store, s.Do = "a", p.store, j.nothing
			return singleton.RunSlots(t.Context(), p.Manager, s)
		}
		wantErr(t, run(singleton.Slots{Schedule: timetable{}}), singleton.ErrNeverFires)
		wantErr(t, run(singleton.Slots{Schedule: singleton.Every(0)}), singleton.ErrNeverFires)
		wantErr(t, run(singleton.Slots{}), singleton.ErrBadArgument)
		every := singleton.Every(time.Hour)
		for _, s := range []singleton.Slots{
			{Missed: 3}, {Grace: -1}, {MostMissed: -1}, {MostMissed: 10_001}, {MaxAttempts: -1},
		} {
			s.Schedule = every
			wantErr(t, run(s), singleton.ErrBadArgument)
		}
		still := nextFunc(func(t time.Time) time.Time { return t })
		fine := nextFunc(func(t time.Time) time.Time { return t.Add(time.Microsecond) })
		wantErr(t, run(singleton.Slots{Schedule: still}), singleton.ErrBadSchedule)
		wantErr(t, run(singleton.Slots{Schedule: fine}), singleton.ErrBadSchedule)
		assert.Equal(t, p.store.Sent(), 0, "%d commands, want %d")
		wantErr(t, run(singleton.Slots{Schedule: timetable{w.started.Add(time.Hour)}}),
			singleton.ErrNeverFires)
		j.want(t, "01:00")
	})
}

// No slot runs twice when the server's clock steps back, or steps ahead and returns.
func TestRunSlots_ServersClockSteps_NoSlotTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var j journal
		step := w.steps()
		p := w.start(0)
		p.slots(slotting(10*time.Minute, j.nothing))
		time.Sleep(35 * time.Minute)
		synctest.Wait()
		step.Store(int64(-20 * time.Minute))
		time.Sleep(30 * time.Minute) // 00:45 on the server
		synctest.Wait()
		step.Store(int64(time.Hour))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		step.Store(0)
		time.Sleep(75*time.Minute + time.Second) // 02:30 on the server
		j.want(t, "00:10 00:20 00:30 00:40 02:00 02:10 02:20 02:30")
	})
}
