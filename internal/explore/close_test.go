package explore_test

import (
	"testing"
	"time"

	"mongodlm/internal/explore"
	"mongodlm/internal/fault"
)

// closing is a world of one process that tries one lock at 1 s and closes at the given time.
func closing(at time.Duration, faults ...explore.Fault) explore.Schedule {
	return explore.Schedule{
		Timing: explore.Small(), Length: at - 100*time.Millisecond, Quiet: 100 * time.Millisecond,
		Faults: faults, Trace: true,
		Processes: []explore.Process{{Users: []func(*explore.User){func(u *explore.User) {
			u.Sleep(time.Second)
			u.Release(u.Try("a"))
		}}}},
	}
}

// I8, found by the exhaustive exploration: an acquisition of unknown outcome is applied after the
// last tick of the reaper. Close used to leave the lock held until somebody took it over.
func TestClose_GhostSinceTheLastTick_IsReleased(t *testing.T) {
	t.Parallel()
	late := explore.Fault{Kind: explore.ApplyLate, Op: fault.Acquire, Nth: 1, For: time.Second}
	r := explore.Run(t, closing(2500*time.Millisecond, late))
	if r.Failed() || r.Faults[explore.ApplyLate] != 1 {
		t.Errorf("%v\n%q", r.Violations, r.Timeline)
	}
}

// I8, found by the random walks (seed 124): a ping is under way when the process closes. It used to
// be applied after the ping document was removed, and made it anew.
func TestClose_PingUnderWay_LeavesNoPing(t *testing.T) {
	t.Parallel()
	slow := explore.Fault{Kind: explore.DelayRequest, Op: fault.Ping, Nth: 2, For: time.Second}
	r := explore.Run(t, closing(5500*time.Millisecond, slow))
	if r.Failed() || r.Faults[explore.DelayRequest] != 1 {
		t.Errorf("%v\n%q", r.Violations, r.Timeline)
	}
}
