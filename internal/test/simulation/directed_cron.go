package simulation

import "time"

// This file has the schedules of jobs that are started anew each time and try for a few seconds.

// jobOf tries for a lock for a while and works under it for 2 s.
func jobOf(name string, wait time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Lock(name, wait); h != nil {
			u.Work(h, 2*sec)
			u.Release(h)
		}
	}
}

// jobs are a holder, and a job that tries every so often from an instant on.
func jobs(start, every time.Duration) Schedule {
	s := scene(holdFor("a", 4*minute), jobOf("a", 6*sec))
	s.Length = 8 * minute
	s.Processes[1].Start, s.Processes[1].Every, s.Processes[1].Job = start, every, "a"
	return s
}

// cron: A dies, and a job that cron starts every half minute has its lock in time. Or A is cut off
// for three intervals only and lives, while the server's clock steps between two runs; or it is cut
// off and lives.
func cron(how Kind) Schedule {
	s := jobs(5*sec, 30*sec)
	switch how {
	case StepServer:
		s.Faults = []Fault{
			{Kind: Cut, Process: 0, At: 20 * sec, For: 25 * sec},
			{Kind: StepServer, At: 50 * sec, For: 2 * minute},
			{Kind: Cut, Process: 0, At: 50 * sec, For: 25 * sec},
		}
	case Cut:
		s.Faults = []Fault{{Kind: Cut, Process: 0, At: 20 * sec, For: 40 * sec}}
	default:
		s.Faults = []Fault{{Kind: Crash, Process: 0, At: 12 * sec}}
	}
	return s
}

// twoJobs: A has died; the clock of a job is ahead, and that of the next, which looks 11 s later,
// is behind. By the server's clock it is two intervals, by theirs it is not yet.
func twoJobs() Schedule {
	s := jobs(2*minute, time.Hour)
	s.Processes = append(s.Processes, s.Processes[1])
	s.Processes[1].Offset, s.Processes[2].Offset = 1900*time.Millisecond, -1900*time.Millisecond
	s.Processes[2].Start = 2*minute + 11*sec
	s.Faults = []Fault{{Kind: Crash, Process: 0, At: 12 * sec}}
	return s
}

// wrongJobs: A is cut off for long enough to look silent, and lives; one clock of three is wrong.
func wrongJobs(first, second, holder time.Duration) Schedule {
	s := jobs(30*sec, time.Hour)
	s.Processes = append(s.Processes, s.Processes[1])
	s.Processes[0].Offset, s.Processes[1].Offset, s.Processes[2].Offset = holder, first, second
	s.Processes[2].Start = 45 * sec
	s.Faults = []Fault{{Kind: Cut, Process: 0, At: 12 * sec, For: 44 * sec}}
	return s
}
