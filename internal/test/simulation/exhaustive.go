package simulation

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// variants returns the faults that strike every command, one at a time. Their lengths are within a
// command's limit, beyond the limit, beyond a holder's deadline, and beyond the takeover time.
func variants() []Fault {
	var all []Fault
	add := func(k Kind, lengths ...time.Duration) {
		if len(lengths) == 0 {
			lengths = []time.Duration{0}
		}
		for _, d := range lengths {
			all = append(all, Fault{Kind: k, For: d})
		}
	}
	add(DelayRequest, 4*sec, 20*sec, 70*sec)
	add(DelayReply, 4*sec, 20*sec)
	add(Refuse)
	add(Drop)
	add(LoseReply)
	add(ApplyLate, 1*sec, 20*sec, 70*sec)
	add(Duplicate, 1*sec, 20*sec, 70*sec)
	add(StaleRead, 4*sec, 20*sec, 70*sec)
	add(OldPrimary, 70*sec)
	add(CrashBefore)
	add(CrashAfter)
	add(PauseBefore, 4*sec, 20*sec, 50*sec, 70*sec)
	add(PauseAfter, 4*sec, 20*sec, 50*sec, 70*sec)
	add(Suspend, 20*sec, 70*sec)
	add(Cut, 20*sec, 70*sec)
	add(Deaf, 20*sec, 70*sec)
	add(Hang, 20*sec, 70*sec)
	add(EndContexts)
	add(Close, 0, 100*time.Millisecond, minute)
	add(StepWall, -20*minute, 50*sec, 20*minute)
	add(StepServer, -20*minute, 50*sec, 20*minute)
	add(Elect, 0, 10*minute)
	add(Sever, time.Millisecond)
	return all
}

// Singles returns a schedule for each kind of fault and each command of each process, in which the
// fault strikes the command. calls[i] is the number of commands of process i without the fault.
func Singles(base Schedule, calls []int) iter.Seq[Schedule] {
	return func(yield func(Schedule) bool) {
		for _, f := range variants() {
			for p, n := range calls {
				for f.Call = 1; f.Call <= n; f.Call++ {
					f.Process = p
					s := base
					s.Faults = append(slices.Clone(base.Faults), f)
					s.Name = fmt.Sprintf("%s, %s", base.Name, f)
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

// others returns schedules that order simultaneous events differently. Each has the choices of base
// and one more. r is the run of base.
func others(base Schedule, r Result) iter.Seq[Schedule] {
	return func(yield func(Schedule) bool) {
		for n := len(base.Choices); n < len(r.Options); n++ {
			for other := 1; other < r.Options[n]; other++ {
				s := base
				s.Choices = make([]int, n+1)
				copy(s.Choices, base.Choices)
				s.Choices[n] = other
				if !yield(s) {
					return
				}
			}
		}
	}
}

// Orders plays a schedule with simultaneous events in different orders. At most deviations choices
// differ from the first order. The function run plays a schedule and reports whether to continue.
func Orders(base Schedule, deviations int, run func(Schedule) (Result, bool)) bool {
	r, on := run(base)
	if !on {
		return false
	}
	if deviations == 0 {
		return true
	}
	for s := range others(base, r) {
		if !Orders(s, deviations-1, run) {
			return false
		}
	}
	return true
}
