package simulation

import (
	"time"

	"mongodlm/internal/test/fault"
)

// Lines are the schedules that try to break the line of a lock, each named after what goes wrong in
// it. Nothing is left to chance. Every one of them is to be played with streams of notices and
// without.
func Lines() []Schedule {
	named := func(name string, s Schedule) Schedule {
		s.Name = name
		return s
	}
	lines := []Schedule{
		named("a line", line(20*sec)),
		named("a long turn before a line", line(2*minute)),
		named("first in line dies", firstDies()),
		named("holder and first in line die", bothDie()),
		named("two evict the same holder", twoEvict()),
		named("release applied, reply lost", lostRelease(LoseReply)),
		named("release vanishes", lostRelease(Drop)),
		named("stream dies between check and watch", deadStream()),
		named("grant while the stream opens", slowStream()),
		named("a stream that lags", laggingStream()),
		named("notice lost with its stream", noticed(Drop, 0)),
		named("notice late", noticed(DelayReply, 70*sec)),
		named("grant when the context ends", grantAtTheEnd(How{Wait: 15 * sec, Context: true})),
		named("grant when WaitAtMost ends", grantAtTheEnd(How{Wait: 15 * sec})),
		named("grant when the term ends", grantAtTheTermsEnd(0)),
		named("grant before the term ends, heard after it", grantAtTheTermsEnd(-3*sec)),
		named("granted while cut off", away(Cut)),
		named("granted while deaf", away(Deaf)),
		named("granted while paused past the deadline", away(Pause)),
		named("grant heard first after a pause past the deadline", heardTooLate()),
		named("granted while suspended past the deadline", away(Suspend)),
		named("enter applied after giving up", ghostInLine(40*sec)),
		named("enter applied after giving up, a long turn", ghostInLine(100*sec)),
		named("enter's reply lost", lostEnter(LoseReply, 0)),
		named("enter applied late and entered again", lostEnter(ApplyLate, 3*sec)),
		named("waiter gives up", quitter()),
		named("freed by a hand", freedByHand()),
		named("readers and writers", readersAndWriters()),
		named("permits", permits()),
		named("holder of a permit dies", deadPermit()),
		named("circle of two", circle(How{Wait: time.Hour})),
	}
	return lines
}

// waitFor waits in line for a lock and works under it for d.
func waitFor(name string, d time.Duration) func(*User) {
	return withHow(name, How{Wait: time.Hour}, d)
}

func withHow(name string, how How, d time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Acquire(name, how); h != nil {
			u.Work(h, d)
			u.Release(h)
		}
	}
}

// line is a scene in which A holds the lock for d, B comes at 5 s, C at 6 s.
func line(d time.Duration) Schedule {
	s := scene(waitFor("a", d), from(5*sec, waitFor("a", 20*sec)), from(6*sec, waitFor("a", 20*sec)))
	s.Length, s.Quiet = d+55*sec, 25*sec
	return s
}

// firstDies: B dies while it is first in line, and C evicts it while A still holds.
func firstDies() Schedule {
	s := line(2 * minute)
	s.Faults = []Fault{{Kind: Crash, Process: 1, At: 12 * sec}}
	return s
}

// bothDie: A and B die, C stands behind them.
func bothDie() Schedule {
	s := line(2 * minute)
	s.Faults = []Fault{
		{Kind: Crash, Process: 0, At: 12 * sec}, {Kind: Crash, Process: 1, At: 12 * sec},
	}
	return s
}

// twoEvict: A dies, another user of it waits first in line; B and C evict both of them at one time:
// C's eviction of the holder arrives after B's, and before B's of the waiter.
func twoEvict() Schedule {
	s := line(2 * minute)
	s.Processes[0].Users = append(s.Processes[0].Users, from(2*sec, waitFor("a", minute)))
	s.Faults = []Fault{
		{Kind: Crash, Process: 0, At: 12 * sec},
		{Kind: DelayRequest, Process: 1, Op: fault.Evict, Nth: 1, For: 1300 * time.Millisecond},
		{Kind: DelayRequest, Process: 1, Op: fault.Evict, Nth: 2, For: sec},
		{Kind: DelayRequest, Process: 2, Op: fault.Evict, Nth: 1, For: 510 * time.Millisecond},
	}
	return s
}

// lostRelease: A's release is applied and its reply lost, or it vanishes.
func lostRelease(how Kind) Schedule {
	s := line(20 * sec)
	s.Faults = []Fault{{Kind: how, Process: 0, Op: fault.Release, Nth: 1}}
	return s
}

// deadStream: B's stream breaks as soon as it has opened and B has asked; A releases before it
// opens again.
func deadStream() Schedule {
	s := line(5500 * time.Millisecond)
	s.Faults = []Fault{
		{Kind: Sever, Process: 1, Op: fault.GrantStream, Nth: 1, For: 100 * time.Millisecond},
	}
	return s
}

// slowStream: A releases right before B's stream is open. Pings are rare, so that it is not the
// look of the ping interval that tells B.
func slowStream() Schedule {
	s := rarePings(16999 * time.Millisecond)
	for nth := range 8 { // a second each, so that B has looked at the lock before
		s.Faults = append(s.Faults, Fault{Kind: Drop, Process: 1, Op: fault.GrantStream, Nth: nth + 1})
	}
	s.Faults = append(s.Faults,
		Fault{Kind: DelayRequest, Process: 1, Op: fault.GrantStream, Nth: 9, For: 4 * sec})
	return s
}

// rarePings is a line in which a look comes a minute after the one before.
func rarePings(d time.Duration) Schedule {
	s := line(d)
	s.Length, s.Quiet = 2*minute, minute
	t := &s.Timing
	t.Ping, t.Takeover, t.Margin = minute, 10*minute, 2*minute
	t.Poll, t.PollMax, t.Limit, t.MaxGap = sec, 4*sec, 5*sec, 3*minute
	return s
}

// laggingStream: what A's release grants B is told nearly a minute later by B's stream.
func laggingStream() Schedule {
	s := rarePings(20 * sec)
	s.Faults = []Fault{{Kind: DelayReply, Process: 1, Op: fault.Notice, Nth: 1, For: 50 * sec}}
	return s
}

// noticed: what A's release grants B is told late, or the stream breaks while it is being told.
func noticed(how Kind, d time.Duration) Schedule {
	s := line(20 * sec)
	s.Faults = []Fault{{Kind: how, Process: 1, Op: fault.Notice, Nth: 1, For: d}}
	return s
}

// grantAtTheEnd: A releases in the instant in which B gives up.
func grantAtTheEnd(how How) Schedule {
	s := line(20 * sec)
	s.Processes[1].Users[0] = from(5*sec, withHow("a", how, 10*sec))
	s.Processes[2].Users[0] = from(6*sec, waitFor("a", 5*sec))
	s.Length, s.Quiet, s.Instant = 40*sec, 10*sec, 20*sec
	return s
}

// grantAtTheTermsEnd: B pings in vain from 12 s on, so that its term ends at 55 s. A releases then.
func grantAtTheTermsEnd(early time.Duration) Schedule {
	s := line(55*sec + early)
	s.Instant = 55 * sec
	for n := 4; n < 60; n++ {
		s.Faults = append(s.Faults, Fault{Kind: Refuse, Process: 1, Op: fault.Ping, Nth: n})
	}
	if early < 0 {
		s.Faults = append(s.Faults,
			Fault{Kind: DelayReply, Process: 1, Op: fault.Notice, Nth: 1, For: -2 * early},
			Fault{Kind: DelayReply, Process: 1, Op: fault.HeldOrFree, At: 55*sec + early, For: 4 * sec},
			Fault{Kind: DelayReply, Process: 1, Op: fault.Look, At: 50 * sec, For: 5 * sec})
	}
	return s
}

// away: B is not there from 10 s to 80 s, and A releases at 30 s.
func away(how Kind) Schedule {
	s := line(30 * sec)
	s.Length = 130 * sec
	s.Faults = []Fault{{Kind: how, Process: 1, At: 10 * sec, For: 70 * sec}}
	return s
}

// heardTooLate: A releases right after B has stopped, and when B runs again, after its deadline,
// that is the first it hears.
func heardTooLate() Schedule {
	s := line(10500 * time.Millisecond)
	s.Length = 100 * sec
	s.Faults = []Fault{{Kind: Pause, Process: 1, At: 10200 * time.Millisecond, For: 70 * sec}}
	return s
}

// ghostInLine: B's first command to enter is applied at 25 s, when B has entered by a second one
// and given up. C enters behind it.
func ghostInLine(turn time.Duration) Schedule {
	s := line(turn)
	s.Processes[1].Users[0] = from(5*sec, func(u *User) {
		u.Release(u.Lock("a", 10*sec))
		u.Sleep(time.Hour)
	})
	s.Processes[2].Users[0] = from(26*sec, waitFor("a", 20*sec))
	s.Faults = []Fault{{Kind: ApplyLate, Process: 1, Op: fault.Enter, Nth: 1, For: 20 * sec}}
	return s
}

// lostEnter: B enters and is not told, or its command arrives after the one that it sent in its
// place.
func lostEnter(how Kind, d time.Duration) Schedule {
	s := line(20 * sec)
	s.Faults = []Fault{{Kind: how, Process: 1, Op: fault.Enter, Nth: 1, For: d}}
	return s
}

// quitter: B gives up while A holds, and C has its turn.
func quitter() Schedule {
	s := line(30 * sec)
	s.Processes[1].Users[0] = from(5*sec, withHow("a", How{Wait: 10 * sec}, 20*sec))
	return s
}

// freedByHand: an old client frees the lock of A and leaves a line behind.
func freedByHand() Schedule {
	s := scene(func(*User) {}, from(5*sec, waitFor("a", 20*sec)), from(6*sec, waitFor("a", 20*sec)))
	s.World = func(o *Outside) {
		o.ForeignPing("mongos")
		o.ForeignLock("a", "mongos")
		o.At(20*sec, func() { o.ForeignRelease("a") })
	}
	return s
}

// readersAndWriters: readers come before a writer and behind it, and another writer behind them.
func readersAndWriters() Schedule {
	read, write := How{Wait: time.Hour, Shared: true}, How{Wait: time.Hour}
	var users []func(*User)
	for i, how := range []How{read, read, write, read, read, write} {
		users = append(users, from(time.Duration(i)*sec, withHow("a", how, 20*sec)))
	}
	s := scene(users...)
	s.Faults = []Fault{
		{Kind: LoseReply, Process: 0, Op: fault.Release, Nth: 1},
		{Kind: LoseReply, Process: 3, Op: fault.Enter, Nth: 1},
	}
	return s
}

// permits: six contend for two permits.
func permits() Schedule {
	var users []func(*User)
	for i := range 6 {
		how := How{Wait: time.Hour, Permits: 2}
		users = append(users, from(time.Duration(i)*sec, withHow("a", how, 20*sec)))
	}
	s := scene(users...)
	s.Faults = []Fault{{Kind: LoseReply, Process: 0, Op: fault.Release, Nth: 1}}
	return s
}

// deadPermit: of two holders of a permit one dies, then the other one lives on and a third is let
// in.
func deadPermit() Schedule {
	how := How{Wait: time.Hour, Permits: 2}
	s := scene(withHow("a", how, 2*minute), withHow("a", how, 2*minute),
		from(5*sec, withHow("a", how, 10*sec)), from(6*sec, withHow("a", how, 10*sec)))
	s.Faults = []Fault{{Kind: Crash, Process: 0, At: 12 * sec}}
	return s
}

// circle: A holds a and wants b, B holds b and wants a.
func circle(how How) Schedule {
	both := func(first, second string) func(*User) {
		return func(u *User) {
			h := u.Lock(first, time.Hour)
			if h != nil && u.Sleep(5*sec) {
				how := how
				how.Under = h
				if other := u.Acquire(second, how); other != nil {
					u.Work(other, 5*sec)
					u.Release(other)
				}
			}
			u.Release(h)
		}
	}
	return scene(both("a", "b"), from(sec, both("b", "a")))
}
