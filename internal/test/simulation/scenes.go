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

	queue := scene(waitFor("a", 20*sec), from(5*sec, waitFor("a", 20*sec)),
		from(6*sec, waitFor("a", 20*sec)))
	queue.Name, queue.Length = "queue", 75*sec
	streams := queue
	streams.Name, streams.Streams = "queue with streams", true

	scenes := []Schedule{handover, death, absence, cut, queue, streams}
	for i := range scenes {
		scenes[i].Timing = Coarse()
		scenes[i].Quiet = 45 * sec
	}
	return scenes
}

// Coarse is a timing with few commands.
func Coarse() Timing {
	t := Small()
	t.Ping, t.Poll, t.PollMax = 15*time.Second, 5*time.Second, 7*time.Second
	return t
}

// scene returns a schedule of a few minutes without random events.
func scene(users ...func(*User)) Schedule {
	s := Schedule{Timing: Small(), Length: 3 * time.Minute, Quiet: time.Minute}
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

// waitFor queues for a lock and works under it for d.
func waitFor(name string, d time.Duration) func(*User) {
	return lockFor(name, time.Hour, d)
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
		if u.Until(at) {
			then(u)
		}
	}
}
