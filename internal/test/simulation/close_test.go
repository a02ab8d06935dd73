package simulation_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/simulation"
)

// closing returns the schedule of one process that tries one lock at 1 s and closes at the given
// time.
func closing(at time.Duration, faults ...simulation.Fault) simulation.Schedule {
	return simulation.Schedule{
		Timing: simulation.Small(), Length: at - 100*time.Millisecond, Quiet: 100 * time.Millisecond,
		Faults: faults, Trace: true,
		Processes: []simulation.Process{{Users: []func(*simulation.User){func(u *simulation.User) {
			u.Sleep(time.Second)
			u.Release(u.Try("a"))
		}}}},
	}
}

// I8: an acquisition of unknown outcome is applied after the last tick of the reaper. Close
// releases the lock.
func TestClose_GhostSinceTheLastTick_IsReleased(t *testing.T) {
	t.Parallel()
	late := simulation.Fault{Kind: simulation.ApplyLate, Op: fault.Acquire, Nth: 1, For: time.Second}
	r := simulation.Run(t, closing(2500*time.Millisecond, late))
	if r.Failed() || r.Faults[simulation.ApplyLate] != 1 {
		t.Errorf("%v\n%q", r.Violations, r.Timeline)
	}
}

// I8: if a ping is in transit when its process closes, the ping document stays removed.
func TestClose_PingUnderWay_LeavesNoPing(t *testing.T) {
	t.Parallel()
	slow := simulation.Fault{Kind: simulation.DelayRequest, Op: fault.Ping, Nth: 2, For: time.Second}
	r := simulation.Run(t, closing(5500*time.Millisecond, slow))
	if r.Failed() || r.Faults[simulation.DelayRequest] != 1 {
		t.Errorf("%v\n%q", r.Violations, r.Timeline)
	}
}

// I8: a command that enters the queue has an unknown outcome, its caller gives up, and the command
// is applied later. Close removes the session from the queue.
func TestClose_EnteredLate_LeavesTheLine(t *testing.T) {
	t.Parallel()
	s := simulation.Schedule{
		Timing: simulation.Small(), Length: 8800 * time.Millisecond, Quiet: 100 * time.Millisecond,
		Trace: true,
		Processes: []simulation.Process{
			{Users: []func(*simulation.User){func(u *simulation.User) { u.Try("a"); u.Sleep(time.Hour) }}},
			{Users: []func(*simulation.User){func(u *simulation.User) {
				u.Sleep(5 * time.Second)
				u.Acquire("a", simulation.How{Wait: time.Second})
			}}},
		},
		Faults: []simulation.Fault{
			{Kind: simulation.ApplyLate, Process: 1, Op: fault.Enter, Nth: 1, For: 3 * time.Second},
			{Kind: simulation.Crash, Process: 0, At: 8500 * time.Millisecond},
		},
	}
	r := simulation.Run(t, s)
	if r.Failed() || r.Faults[simulation.ApplyLate] != 1 {
		t.Errorf("%v\n%s", r.Violations, strings.Join(r.Timeline, "\n"))
	}
}

// I8: a command that enters the queue has an unknown outcome, is sent again and succeeds. The first
// copy is applied only after the lock was acquired and released. Close removes the session from the
// queue.
func TestClose_EnteredTwice_LeavesTheLine(t *testing.T) {
	t.Parallel()
	s := simulation.Schedule{
		Timing: simulation.Small(), Length: 10800 * time.Millisecond, Quiet: 100 * time.Millisecond,
		Trace: true,
		Processes: []simulation.Process{
			{Users: []func(*simulation.User){
				func(u *simulation.User) {
					h := u.Try("a")
					u.Sleep(7 * time.Second)
					u.Release(h)
				},
				func(u *simulation.User) { // holds the lock when the first copy arrives
					u.Sleep(9 * time.Second)
					u.Try("a")
					u.Sleep(time.Hour)
				},
			}},
			{Users: []func(*simulation.User){func(u *simulation.User) {
				u.Sleep(5 * time.Second)
				if h := u.Acquire("a", simulation.How{Wait: 3 * time.Second}); h != nil {
					u.Release(h)
				}
			}}},
		},
		Faults: []simulation.Fault{
			{Kind: simulation.ApplyLate, Process: 1, Op: fault.Enter, Nth: 1, For: 5 * time.Second},
			{Kind: simulation.Crash, Process: 0, At: 10500 * time.Millisecond},
		},
	}
	r := simulation.Run(t, s)
	if r.Failed() || r.Faults[simulation.ApplyLate] != 1 {
		t.Errorf("%v\n%s", r.Violations, strings.Join(r.Timeline, "\n"))
	}
}
