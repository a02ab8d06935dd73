package simulation

import "time"

const (
	sec    = time.Second
	minute = time.Minute
)

// Scenes returns the small schedules for the exhaustive tests. In some schedules, two contenders
// poll a lock. In the others, they wait in the queue. In the last schedule, four contenders are in
// one process. All clocks run at the same rate, so many events are simultaneous. The intervals are
// long, so a takeover takes few commands.
func Scenes() []Schedule {
	short, long := holdFor("a", 20*sec), holdFor("a", 2*minute)
	wait := lockFor("a", time.Hour, 20*sec)
	later := from(5*sec, holdFor("a", minute))
	schedules := []Schedule{
		smallSchedule("handover", 60*sec, short, from(5*sec, short)),
		smallSchedule("death", 100*sec, holdFor("a", minute), from(5*sec, short)),
		smallSchedule("absence", 130*sec, long, later),
		smallSchedule("cut", 130*sec, long, later),
		smallSchedule("queue", 75*sec, wait, from(5*sec, wait), from(6*sec, wait)),
		smallSchedule("queue with streams", 75*sec, wait, from(5*sec, wait), from(6*sec, wait)),
	}
	schedules[1].Faults = []Fault{{Kind: Crash, At: 12 * sec}}
	schedules[2].Faults = []Fault{{Kind: Pause, At: 12 * sec, For: 80 * sec}}
	schedules[3].Faults = []Fault{{Kind: Cut, At: 12 * sec, For: 80 * sec}}
	schedules[5].Streams = true
	crowd := smallSchedule("crowd", 75*sec, rush("a", 2), rush("a", 2))
	for range 3 {
		crowd.Processes[0].Users = append(crowd.Processes[0].Users, rush("a", 2))
	}
	return append(schedules, crowd)
}

// smallSchedule returns a schedule without random events and with long intervals.
func smallSchedule(name string, length time.Duration, users ...func(*User)) Schedule {
	s := Schedule{Name: name, Timing: Small(), Length: length, Quiet: 45 * sec}
	s.Timing.Ping, s.Timing.Poll, s.Timing.PollMax = 15*sec, 5*sec, 7*sec
	for _, u := range users {
		s.Processes = append(s.Processes, Process{Users: []func(*User){u}})
	}
	return s
}

// holdFor returns a user that polls a lock, works under it for the duration d, and releases it.
func holdFor(name string, d time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Poll(name, time.Hour); h != nil {
			u.Work(h, d)
			u.Release(h)
		}
	}
}

// lockFor returns a user that waits for a lock in its queue, for at most the duration wait. It
// works under the lock for the duration d, and releases it.
func lockFor(name string, wait, d time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Lock(name, wait); h != nil {
			u.Work(h, d)
			u.Release(h)
		}
	}
}

// rush returns a user that waits for a lock, works under it for a few milliseconds and releases it,
// n times in all.
func rush(name string, n int) func(*User) {
	short := lockFor(name, time.Hour, time.Millisecond)
	return func(u *User) {
		for range n {
			short(u)
		}
	}
}

// from returns a user that begins at the given time.
func from(at time.Duration, then func(*User)) func(*User) {
	return func(u *User) {
		if u.Sleep(at - u.p.w.Now()) {
			then(u)
		}
	}
}
