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

// A holder's clock at three quarters of the true rate, which is the bound, and a contender's clock
// that is 1.3 times too fast do no harm (A8, A9). For a holder's clock that is 40 % slow, which is
// beyond the bound, the oracle reports two holders.
func TestRates_WithinAndBeyondTheBound(t *testing.T) {
	for _, of := range []struct {
		process int
		rate    float64
		fails   bool
	}{{0, 0.75, false}, {0, 0.6, true}, {1, 1.3, false}} {
		s := scene(t, "cut")
		s.Processes[of.process].Rate = of.rate
		if r := simulation.Run(t, s); r.Failed() != of.fails || r.Stats["takeovers"] == 0 {
			t.Errorf("%+v: %v, %v", of, r.Violations, r.Stats)
		}
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
