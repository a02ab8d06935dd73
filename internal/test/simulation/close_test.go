package simulation_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/simulation"
)

// Close leaves neither a session nor a ping of its process (rule I8), even if a command of the
// process is applied late.
func TestClose_CommandsUnderWay_LeavesNothing(t *testing.T) {
	t.Parallel()
	type user = func(*simulation.User)
	holds := func(u *simulation.User) { u.Try("a"); u.Sleep(time.Hour) }
	for name, of := range map[string]struct {
		end   time.Duration // end of the run
		users [][]user      // users by process
		fault simulation.Fault
		crash time.Duration // crash of the first process
	}{
		"acquired since the last tick of the reaper": {
			end:   2500 * time.Millisecond,
			users: [][]user{{func(u *simulation.User) { u.Sleep(time.Second); u.Release(u.Try("a")) }}},
			fault: simulation.Fault{Kind: simulation.ApplyLate, Op: fault.Acquire, For: time.Second},
		},
		"a ping in transit": {
			end:   5500 * time.Millisecond,
			users: [][]user{{func(u *simulation.User) { u.Sleep(time.Hour) }}},
			fault: simulation.Fault{Kind: simulation.DelayRequest, Op: fault.Ping, At: time.Second,
				For: time.Second},
		},
		"queued after its caller gave up": {
			end: 8900 * time.Millisecond, crash: 8500 * time.Millisecond,
			users: [][]user{{holds}, {func(u *simulation.User) {
				u.Sleep(5 * time.Second)
				u.Lock("a", time.Second)
			}}},
			fault: simulation.Fault{Kind: simulation.ApplyLate, Process: 1, Op: fault.Enter,
				For: 3 * time.Second},
		},
		"queued again after the release": {
			end: 10900 * time.Millisecond, crash: 10500 * time.Millisecond,
			users: [][]user{{
				func(u *simulation.User) {
					h := u.Try("a")
					u.Sleep(7 * time.Second)
					u.Release(h)
				},
				func(u *simulation.User) { u.Sleep(9 * time.Second); holds(u) },
			}, {func(u *simulation.User) {
				u.Sleep(5 * time.Second)
				u.Release(u.Lock("a", 3*time.Second))
			}}},
			fault: simulation.Fault{Kind: simulation.ApplyLate, Process: 1, Op: fault.Enter,
				For: 5 * time.Second},
		},
	} {
		s := simulation.Schedule{Name: name, Timing: simulation.Small(), Trace: true,
			Length: of.end - 100*time.Millisecond, Quiet: 100 * time.Millisecond,
			Faults: []simulation.Fault{of.fault}}
		for _, users := range of.users {
			s.Processes = append(s.Processes, simulation.Process{Users: users})
		}
		if of.crash > 0 {
			s.Faults = append(s.Faults, simulation.Fault{Kind: simulation.Crash, At: of.crash})
		}
		if r := simulation.Run(t, s); r.Failed() || r.Stats[string(of.fault.Kind)] != 1 {
			t.Errorf("%s: %v\n%s", name, r.Violations, strings.Join(r.Timeline, "\n"))
		}
	}
}
