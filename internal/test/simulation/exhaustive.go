package simulation

import (
	"fmt"
	"iter"
	"slices"
	"time"
)

// Scenes are the small worlds that are explored exhaustively: two contenders that try, or a holder
// and two who wait in line; one lock, clocks that tick together, so that many events fall on the
// same instants. The times are coarse, so that a takeover takes few commands.
func Scenes() []Schedule {
	handover := scene(holdFor("a", 20*sec), from(5*sec, holdFor("a", 20*sec)))
	handover.Name, handover.Length = "handover", 60*sec

	death := scene(holdFor("a", minute), from(5*sec, holdFor("a", 20*sec)))
	death.Name, death.Length = "death", 100*sec
	death.Faults = []Fault{{Kind: Crash, Process: 0, At: 12 * sec}}

	absence := scene(holdFor("a", 2*minute), from(5*sec, holdFor("a", minute)))
	absence.Name, absence.Length = "absence", 130*sec
	absence.Faults = []Fault{{Kind: Pause, Process: 0, At: 12 * sec, For: 80 * sec}}

	cut := scene(holdFor("a", 2*minute), from(5*sec, holdFor("a", minute)))
	cut.Name, cut.Length = "cut", 130*sec
	cut.Faults = []Fault{{Kind: Cut, Process: 0, At: 12 * sec, For: 80 * sec}}

	inLine := line(20 * sec)
	inLine.Name, inLine.Length = "line", 75*sec
	streams := inLine
	streams.Name, streams.Streams = "line with streams", true

	twins := scene(holdLost("a"), func(u *User) {
		h, other := u.Try("a"), u.Try("b")
		u.Sleep(40 * sec)
		u.Release(other)
		u.Release(h)
	}, from(22*sec, holdFor("a", 20*sec)))
	twins.Name, twins.Length = "twins after a snapshot", 80*sec
	twins.Processes[1].Start, twins.Processes[1].Twin, twins.Processes[1].Snapshot = 20*sec, true, true

	scenes := []Schedule{handover, death, absence, cut, inLine, streams, twins}
	for i := range scenes {
		scenes[i].Timing = Coarse()
		scenes[i].Quiet = 45 * sec
	}
	return scenes
}

// Coarse is a timing of few commands.
func Coarse() Timing {
	t := Small()
	t.Ping, t.Poll, t.PollMax = 15*time.Second, 5*time.Second, 7*time.Second
	return t
}

// variants are the faults that every command meets, one at a time. The lengths are: within the
// limit of a command, beyond it, beyond the deadline of a holder, beyond the takeover time.
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

// Singles are the schedules in which one fault of every kind strikes one command, each command of
// each process in turn. calls is how many commands each process sends when nothing strikes.
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

// Others are the orders of the events of equal instants that differ in one choice from the order
// that a schedule has by itself; at an instant other than 0 only its events. r is its run.
func Others(base Schedule, r Result, at time.Duration) iter.Seq[Schedule] {
	return func(yield func(Schedule) bool) {
		for n := len(base.Choices); n < len(r.Options); n++ {
			for other := 1; other < r.Options[n] && (at == 0 || r.When[n] == at); other++ {
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

// Orders plays every order of the events of equal instants that differs from the first one in at
// most so many choices; at an instant other than 0 only of its events. run plays a schedule and
// reports whether to go on.
func Orders(base Schedule, at time.Duration, deviations int,
	run func(Schedule) (Result, bool)) bool {
	r, on := run(base)
	if !on {
		return false
	}
	if deviations == 0 {
		return true
	}
	for s := range Others(base, r, at) {
		if !Orders(s, at, deviations-1, run) {
			return false
		}
	}
	return true
}
