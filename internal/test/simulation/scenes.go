package simulation

import "time"

const (
	sec    = time.Second
	minute = time.Minute
)

// Scenes returns the small schedules that are explored exhaustively: two contenders that poll,
// or three queued contenders. The clocks tick together, so many events happen in the same instants.
// The times are coarse, so a takeover takes few commands.
func Scenes() []Schedule {
	short, long := holdFor("a", 20*sec), holdFor("a", 2*minute)
	wait := lockFor("a", time.Hour, 20*sec)
	later := from(5*sec, holdFor("a", minute))
	scenes := []Schedule{
		scene("handover", 60*sec, short, from(5*sec, short)),
		scene("death", 100*sec, holdFor("a", minute), from(5*sec, short)),
		scene("absence", 130*sec, long, later),
		scene("cut", 130*sec, long, later),
		scene("queue", 75*sec, wait, from(5*sec, wait), from(6*sec, wait)),
		scene("queue with streams", 75*sec, wait, from(5*sec, wait), from(6*sec, wait)),
	}
	scenes[1].Faults = []Fault{{Kind: Crash, At: 12 * sec}}
	scenes[2].Faults = []Fault{{Kind: Pause, At: 12 * sec, For: 80 * sec}}
	scenes[3].Faults = []Fault{{Kind: Cut, At: 12 * sec, For: 80 * sec}}
	scenes[5].Streams = true
	return scenes
}

// scene returns a schedule without random events and with few commands.
func scene(name string, length time.Duration, users ...func(*User)) Schedule {
	s := Schedule{Name: name, Timing: Small(), Length: length, Quiet: 45 * sec}
	s.Timing.Ping, s.Timing.Poll, s.Timing.PollMax = 15*sec, 5*sec, 7*sec
	for _, u := range users {
		s.Processes = append(s.Processes, Process{Users: []func(*User){u}})
	}
	return s
}

// holdFor polls for a lock without queueing, then works under the lock for d.
func holdFor(name string, d time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Poll(name, time.Hour); h != nil {
			u.Work(h, d)
			u.Release(h)
		}
	}
}

// lockFor queues for a lock, for at most the duration wait, and works under the lock for d.
func lockFor(name string, wait, d time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Lock(name, wait); h != nil {
			u.Work(h, d)
			u.Release(h)
		}
	}
}

// from starts a user at an instant.
func from(at time.Duration, then func(*User)) func(*User) {
	return func(u *User) {
		if u.Sleep(at - u.p.w.Now()) {
			then(u)
		}
	}
}
