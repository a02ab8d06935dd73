package simulation_test

import (
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/simulation"
)

// A8: a holder whose clock runs at three quarters, exactly at the bound, is lost before anybody
// takes over; one that runs 40 % slow is beyond the bound, and the overlap must be found.
func TestRates_WithinAndBeyondTheBound(t *testing.T) {
	for rate, want := range map[float64]bool{0.75: false, 0.6: true} {
		s := named(t, "holder cut off past the takeover time")
		s.Processes[0].Rate = rate
		r := simulation.Run(t, s)
		if r.Failed() != want {
			t.Errorf("holder's clock at %v: %v, want a violation: %v", rate, r.Violations, want)
		}
		if r.Takeovers == 0 {
			t.Errorf("holder's clock at %v: nobody took over", rate)
		}
	}
}

// A9: a contender whose clock runs 1.3 times too fast takes over no earlier than it may.
func TestRates_FastContender(t *testing.T) {
	s := named(t, "holder cut off past the takeover time")
	s.Processes[1].Rate = 1.3
	if r := simulation.Run(t, s); r.Failed() || r.Takeovers == 0 {
		t.Errorf("%d takeovers, %v", r.Takeovers, r.Violations)
	}
}

// Shrinking leaves the one fault that matters.
func TestShrink_LeavesWhatMatters(t *testing.T) {
	s := named(t, "holder paused past the takeover time")
	s.StoreMistake = simulation.ReleaseByName
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

func named(t *testing.T, name string) simulation.Schedule {
	t.Helper()
	return assert.Value(simulation.Named(name))(t)
}

// A run that has found a violation ends, although jobs start right after it.
func TestRun_EndsAtAViolation_WithJobs(t *testing.T) {
	s := named(t, "holder cut off past the takeover time")
	s.Processes[0].Rate = 0.6
	late := s.Processes[1]
	late.Start, late.Every = 70*time.Second+time.Millisecond, time.Millisecond
	s.Processes = append(s.Processes, late, s.Processes[1])
	s.Faults = append(s.Faults, simulation.Fault{Kind: simulation.Crash, Process: 3, At: time.Second})
	if r := simulation.Run(t, s); !r.Failed() {
		t.Errorf("violations: %v", r.Violations)
	}
}
