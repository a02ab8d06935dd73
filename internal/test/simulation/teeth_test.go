package simulation_test

import (
	"testing"
	"time"

	"mongodlm/internal/test/simulation"
	"mongodlm/takeover"
)

func smallSchedule(t *testing.T, name string) simulation.Schedule {
	t.Helper()
	for _, s := range simulation.Scenes() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no schedule is named %q", name)
	return simulation.Schedule{}
}

// No rule is violated if the clock rates are within the bound. If a rate is far beyond the bound, a
// rule is violated.
func TestRates_WithinAndBeyondTheBound(t *testing.T) {
	for _, of := range []struct {
		process int
		rate    float64
		fails   bool
	}{{0, 0.75, false}, {0, 0.6, true}, {1, 1.3, false}} {
		s := smallSchedule(t, "cut")
		s.Processes[of.process].Rate = of.rate
		if r := simulation.Run(t, s); r.Failed() != of.fails || r.Stats["takeovers"] == 0 {
			t.Errorf("%+v: %v, %v", of, r.Violations, r.Stats)
		}
	}
}

// A waiter takes over from a dead process (rule I7), even if the ping interval equals the longest
// gap that a watch allows between two reads. The waiter reads once per ping interval, a little
// late.
func TestQueue_PingAsLongAsTheGap_DeadAreTakenOver(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		s := smallSchedule(t, "queue")
		s.Length = 8 * time.Minute
		s.Timing.Mode = takeover.WatchOnly
		s.Processes[2].Rate = 0.97
		for p := range n {
			s.Faults = append(s.Faults,
				simulation.Fault{Kind: simulation.Crash, Process: 1 - p, At: 12 * time.Second})
		}
		if r := simulation.Run(t, s); r.Failed() {
			t.Errorf("%d dead: %v", n, r.Violations)
		}
	}
}
