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
	add(Crash)
	add(PauseBefore, 4*sec, 20*sec, 50*sec, 70*sec)
	add(Pause, 4*sec, 20*sec, 50*sec, 70*sec)
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

// Orders returns the schedules that differ from base in the order of the processes at one instant.
// options is Result.Options of base.
func Orders(base Schedule, options []int) (all []Schedule) {
	for n, choices := range options {
		for other := 1; other < choices; other++ {
			s := base
			s.Turn, s.Pick = n, other
			all = append(all, s)
		}
	}
	return all
}
