package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// Several calls of RunNow start exactly one round, within a minute.
func TestRunNow_FromAnotherProcess_OneRoundSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var begun []time.Time
		loop := looping(24*time.Hour, func(context.Context, *distlock.TryGuard) error {
			mu.Lock()
			begun = append(begun, time.Now())
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		})
		seen := func() []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(begun)
		}
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
		rounds := seen()
		if len(rounds) != 2 || rounds[1].Sub(requested) > time.Minute {
			t.Fatalf("begun at %v, requested at %v", rounds, requested)
		}
		second := rounds[1]
		time.Sleep(24*time.Hour - 2*time.Hour - time.Minute + second.Sub(requested))
		if rounds = seen(); len(rounds) != 2 {
			t.Errorf("the next came %v after it", rounds[2].Sub(second))
		}
		time.Sleep(2 * time.Minute)
		if rounds = seen(); len(rounds) != 3 || rounds[2].Sub(second) != 24*time.Hour {
			t.Errorf("begun at %v", rounds)
		}
	})
}

// If RunNow is called during a round, the requested round begins after that round, even if the
// process of that round dies.
func TestRunNow_WhileARoundRuns_FollowsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		runs, most, total := 0, 0, 0
		loop := looping(24*time.Hour, func(ctx context.Context, _ *distlock.TryGuard) error {
			mu.Lock()
			runs++
			total++
			most = max(most, runs)
			mu.Unlock()
			defer func() { mu.Lock(); defer mu.Unlock(); runs-- }()
			select {
			case <-time.After(30 * time.Minute):
			case <-ctx.Done():
			}
			return nil
		})
		a := w.start(0)
		a.loop(loop)
		time.Sleep(time.Minute)
		ask := singleton.Loop{Name: "a", Store: w.store}
		want := func(n int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if total != n || most != 1 {
				t.Errorf("%d rounds, %d at a time; want %d, 1", total, most, n)
			}
		}
		now := func() {
			t.Helper()
			assert.Must(t, ask.RunNow(t.Context()))
		}
		now()
		time.Sleep(time.Minute)
		want(1)
		time.Sleep(29 * time.Minute)
		want(2)
		w.start(0).loop(loop)
		now()
		a.kill()
		time.Sleep(time.Hour)
		want(3)
		time.Sleep(time.Hour)
		want(3)
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
		var mu sync.Mutex
		var slots []time.Time
		w.start(0).slots(slotting(6*time.Hour, func(_ context.Context, s singleton.Slot) error {
			mu.Lock()
			defer mu.Unlock()
			slots = append(slots, s.Time)
			return nil
		}))
		ask := singleton.Slots{Name: "a", Store: w.store}
		time.Sleep(7 * time.Hour)
		requested := time.Now()
		assert.Must(t, ask.RunNow(t.Context()))
		time.Sleep(time.Minute + time.Second)
		mu.Lock()
		if len(slots) != 2 || slots[1].Before(requested) || slots[1].After(time.Now()) {
			t.Fatalf("slots %v, requested at %v", slots, requested)
		}
		mu.Unlock()
		time.Sleep(17 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(slots) != 5 || slots[2].Sub(slots[0]) != 6*time.Hour {
			t.Errorf("slots %v", slots)
		}
		s := w.status()
		if last := len(s.Runs) - 1; s.Missed != 0 || last != 4 || !s.Runs[4].Slot.Equal(slots[4]) ||
			s.Runs[4].Attempt != 1 {
			t.Errorf("status %+v", s)
		}
	})
}

// RunNow returns an error if the name has no record, if the record has another kind, or if an
// argument is missing.
func TestRunNow_NothingToAsk_SaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start(0).loop(singleton.Loop{Name: "a", Every: time.Hour, Do: nothing})
		time.Sleep(time.Minute)
		for err, want := range map[error]error{
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
