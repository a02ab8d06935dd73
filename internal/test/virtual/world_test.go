package virtual_test

import (
	"slices"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/virtual"
)

func TestMain(m *testing.M) { effort.Main(m) }

var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// ask runs two goroutines in each of two processes, and returns the resulting events in order. If
// turned is set, the goroutines of the second process start first.
func ask(t *testing.T, turned bool) (happened []string) {
	virtual.Play(t, epoch, func(w *virtual.World) {
		processes := []*virtual.Process{w.NewProcess(0, 1), w.NewProcess(1, 1)}
		note := func(text string) { happened = append(happened, text) }
		names := []string{"A", "B"}
		if turned {
			slices.Reverse(processes)
			slices.Reverse(names)
		}
		last := make(chan struct{})
		close(last)
		for i, p := range processes {
			for _, key := range []string{"second", "first"} {
				before, done := last, make(chan struct{})
				p.Go(func() {
					<-before
					w.Post(p.Index, key, func() { note(names[i] + " posts " + key) })
					timer := p.Clock.NewTimer(time.Second)
					close(done)
					<-timer.C()
					w.Post(p.Index, key, func() { note(names[i] + " fires " + key) })
				})
				last = done
			}
		}
		for w.Now() < time.Minute {
			w.Step(time.Minute, func() {})
		}
	})
	return happened
}

// The order of events is independent of the order of goroutines.
func TestWorld_Goroutines_TurnedAround_SameOrder(t *testing.T) {
	t.Parallel()
	one, other := ask(t, false), ask(t, true)
	if len(one) != 8 || !slices.Equal(one, other) {
		t.Errorf("%q\n%q", one, other)
	}
}

// A stopped or dead process receives no event. For a suspended process no time passes.
func TestProcess_StoppedSuspendedDead_NoticesLater(t *testing.T) {
	t.Parallel()
	type outcome struct{ paused, suspended, dead time.Duration }
	var got outcome
	virtual.Play(t, epoch, func(w *virtual.World) {
		sleep := func(index int, at *time.Duration) *virtual.Process {
			p := w.NewProcess(index, 1)
			p.Go(func() {
				<-p.Clock.NewTimer(10 * time.Second).C()
				*at = w.Now()
			})
			return p
		}
		paused, suspended, dead := sleep(0, &got.paused), sleep(1, &got.suspended), sleep(2, &got.dead)
		w.At(5*time.Second, -1, func() {
			paused.Pause(20*time.Second, false, func() {})
			suspended.Pause(20*time.Second, true, func() {})
			dead.Die()
		})
		step := func(limit time.Duration) { w.Step(limit, func() {}) }
		for w.Now() < time.Minute {
			step(time.Minute)
		}
		for _, p := range []*virtual.Process{paused, suspended, dead} {
			p.Bury(func() {})
		}
		w.Drain(step)
	})
	if want := (outcome{25 * time.Second, 30 * time.Second, time.Minute}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
