package simulation_test

import (
	"testing"
	"time"

	"mongodlm/internal/test/simulation"
	"mongodlm/takeover"
)

// scene returns the small schedule with the given name.
func scene(t *testing.T, name string) simulation.Schedule {
	t.Helper()
	for _, s := range simulation.Scenes() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no scene is named %q", name)
	return simulation.Schedule{}
}

// A8: a holder with a clock at three quarters of the true rate, which is the bound, loses its guard
// before a takeover. For a clock that is 40 % slow, which is beyond the bound, the oracle reports
// two holders.
func TestRates_WithinAndBeyondTheBound(t *testing.T) {
	for rate, want := range map[float64]bool{0.75: false, 0.6: true} {
		s := scene(t, "cut")
		s.Processes[0].Rate = rate
		r := simulation.Run(t, s)
		if r.Failed() != want {
			t.Errorf("holder's clock at %v: %v, want a violation: %v", rate, r.Violations, want)
		}
		if r.Takeovers == 0 {
			t.Errorf("holder's clock at %v: no takeover", rate)
		}
	}
}

// A9: a contender with a clock that is 1.3 times too fast does not take over too early.
func TestRates_FastContender(t *testing.T) {
	s := scene(t, "cut")
	s.Processes[1].Rate = 1.3
	if r := simulation.Run(t, s); r.Failed() || r.Takeovers == 0 {
		t.Errorf("%d takeovers, %v", r.Takeovers, r.Violations)
	}
}

// Shrink keeps only the fault that causes the violation.
func TestShrink_LeavesTheFaultThatMatters(t *testing.T) {
	s := scene(t, "cut")
	s.Processes[0].Rate = 0.6
	matters := s.Faults[0]
	noise := simulation.Fault{Kind: simulation.DelayReply, Process: 1, For: time.Second}
	for noise.Call = 1; noise.Call <= 9; noise.Call++ {
		s.Faults = append(s.Faults, noise)
	}
	short := simulation.Shrink(s,
		func(s simulation.Schedule) bool { return simulation.Run(t, s).Failed() })
	if len(short.Faults) != 1 || short.Faults[0] != matters {
		t.Errorf("shrunk to %v, want only %v", short.Faults, matters)
	}
}

// I7: a waiter takes over from a dead process, even if the ping interval is as long as the gap that
// breaks a watch, and the waiter reads only once per interval, a little late.
func TestQueue_PingAsLongAsTheGap_DeadAreTakenOver(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 2; n++ {
		s := scene(t, "queue")
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
