package simulation

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// Tries are the schedules of one holder and of those who try its lock without a place in line, each
// named after what goes wrong. Where a promise is kept by two rules, the schedule takes the other
// one out of the way by a fault. Nothing is left to chance. Every one of them is to be played with
// streams of notices and without.
func Tries() []Schedule {
	named := func(name string, s Schedule) Schedule {
		s.Name = name
		return s
	}
	return []Schedule{
		named("two contenders at one time", twoContenders()),
		named("holder paused past the takeover time", outlived(Pause)),
		named("holder cut off past the takeover time", outlived(Cut)),
		named("last ping's reply slow", slowLastPing()),
		named("first look slow", slowFirstLook()),
		named("last look slow", slowLastLook()),
		named("ping answered after the deadline", lateReply()),
		named("holder with a longer takeover time", patientHolder()),
		named("contender's clock ahead", wrongClock()),
		named("acquire applied after giving up", lateAcquire()),
		named("acquired during the reaper's read", slowListing()),
		named("reaper's read during an acquire", slowAcquire()),
		named("twins", twins()),
		named("restored from a snapshot", restored(DelayRequest)),
		named("restored from a snapshot, a ghost on the list", restored(Refuse)),
		named("restored from a snapshot, the old one wakes after its deadline", wokenTwin()),
		named("acquire applied, reply lost", lostAcquire(LoseReply)),
		named("acquire vanishes", lostAcquire(Drop)),
		named("lock without a state", withoutState()),
		named("election during a watch", election()),
		named("foreign holder acquires again", foreignAgain()),
		named("lock document deleted", deleted()),
		named("old primary answers", oldPrimary()),
		named("lost guard asks the server", readAgain()),
		named("two pings applied late", latePing()),
		named("foreign manager over the fields of ours", foreignOverOurs()),
		named("a job that cron starts", cron(0)),
		named("a job that cron starts, the server's clock steps between two runs", cron(StepServer)),
		named("a job that cron starts, its holder is cut off and lives", cron(Cut)),
		named("two jobs whose clocks differ by what is allowed", twoJobs()),
		named("two jobs, the first one's clock ahead", wrongJobs(10*minute, 0, 0)),
		named("two jobs, the second one's clock ahead", wrongJobs(0, 10*minute, 0)),
		named("two jobs, the holder's clock behind", wrongJobs(0, 0, -10*minute)),
	}
}

// scene is a schedule of seconds in which nothing is left to chance.
func scene(users ...func(*User)) Schedule {
	s := Schedule{Timing: Small(), Length: 3 * time.Minute, Quiet: time.Minute}
	for _, u := range users {
		s.Processes = append(s.Processes, Process{Users: []func(*User){u}})
	}
	return s
}

// holdFor acquires a lock, by tries without a place in line, and works under it for d.
func holdFor(name string, d time.Duration) func(*User) {
	return func(u *User) {
		if h := u.Poll(name, time.Hour); h != nil {
			u.Work(h, d)
			u.Release(h)
		}
	}
}

// from lets a user begin at an instant.
func from(at time.Duration, then func(*User)) func(*User) {
	return func(u *User) {
		if u.Until(at) {
			then(u)
		}
	}
}

const (
	sec    = time.Second
	minute = time.Minute
)

// outlived: A loses contact in one way or another for longer than the takeover time, B takes over,
// A comes back while B holds, looks at its guard and releases it.
func outlived(how Kind) Schedule {
	s := scene(holdFor("a", 2*minute), from(5*sec, holdFor("a", 2*minute)))
	s.Faults = []Fault{{Kind: how, Process: 0, At: 12 * sec, For: 90 * sec}}
	return s
}

// twoContenders: A dies; B and C both see that its lock may be taken, and C's overtake arrives
// after B's.
func twoContenders() Schedule {
	next := from(5*sec, holdFor("a", minute))
	s := scene(holdFor("a", minute), next, next)
	s.Faults = []Fault{
		{Kind: Crash, Process: 0, At: 12 * sec},
		{Kind: DelayRequest, Process: 2, Op: fault.Overtake, Nth: 1, For: sec},
		{Kind: DelayRequest, Process: 1, Op: fault.Overtake, Nth: 1, For: sec / 2},
	}
	return s
}

// slowLastPing: the reply of A's last ping takes longer than the margin; then A is cut off.
func slowLastPing() Schedule {
	s := scene(holdFor("a", 2*minute), from(15500*time.Millisecond, holdFor("a", minute)))
	s.Timing.Limit, s.Timing.Ping, s.Timing.Margin = 20*sec, 15*sec, 10*sec
	s.Faults = []Fault{
		{Kind: DelayReply, Process: 0, Op: fault.Ping, Nth: 2, For: 14500 * time.Millisecond},
		{Kind: Cut, Process: 0, At: 16 * sec, For: 2 * minute},
	}
	return s
}

// slowFirstLook: B's first look is under way for long, and A pings just before it arrives, for the
// last time. Nobody knows the server's clock.
func slowFirstLook() Schedule {
	s := scene(holdFor("a", 2*minute), from(6*sec, holdFor("a", minute)))
	s.NoServerTime = true
	s.Timing.Limit, s.Timing.MaxGap = 30*sec, minute
	s.Faults = []Fault{
		{Kind: DelayRequest, Process: 1, Op: fault.Look, Nth: 1, For: 20 * sec},
		{Kind: Cut, Process: 0, At: 26 * sec, For: 2 * minute},
	}
	return s
}

// slowLastLook: A dies, and the reply of B's last look is under way for long, as is that of the
// look with which its vigil goes on. Nobody knows the server's clock.
func slowLastLook() Schedule {
	s := scene(holdFor("a", 2*minute), from(5*sec, holdFor("a", minute)))
	s.NoServerTime = true
	s.Timing.Limit, s.Timing.MaxGap = 30*sec, minute
	s.Faults = []Fault{
		{Kind: Crash, Process: 0, At: 12 * sec},
		{Kind: DelayReply, Process: 1, Op: fault.Look, At: 60 * sec, For: 20 * sec},
		{Kind: DelayReply, Process: 1, Op: fault.Look, At: 63 * sec, For: 20 * sec},
	}
	return s
}

// lateReply: A stops between a ping and its reply until after its deadline. When it runs again its
// timer is first, then comes the reply.
func lateReply() Schedule {
	s := scene(func(u *User) {
		if h := u.Poll("a", minute); h != nil {
			u.Sleep(2 * minute) // whatever the guard says
			u.Release(h)
		}
	})
	s.Timing.Limit = 50 * sec
	s.Faults = []Fault{
		{Kind: DelayReply, Process: 0, Op: fault.Ping, At: 18 * sec, For: 41 * sec},
		{Kind: Pause, Process: 0, At: 21 * sec, For: 42 * sec},
	}
	return s
}

// patientHolder: A asks for a longer takeover time than B, and is cut off.
func patientHolder() Schedule {
	s := outlived(Cut)
	s.Processes[0].Takeover, s.Processes[0].Margin = 3*minute, 45*sec
	s.Faults[0].For = 4 * minute
	s.Length = 5 * minute
	return s
}

// wrongClock: B's wall clock is twenty minutes ahead; A is well.
func wrongClock() Schedule {
	s := scene(holdFor("a", 2*minute), from(5*sec, holdFor("a", minute)))
	s.Processes[1].Offset = 20 * minute
	return s
}

// lateAcquire: A's acquire is applied when A has given it up.
func lateAcquire() Schedule {
	s := scene(func(u *User) { u.Release(u.Try("a")); u.Sleep(time.Hour) })
	s.Faults = []Fault{{Kind: ApplyLate, Process: 0, Op: fault.Acquire, Nth: 1, For: 10 * sec}}
	return s
}

// slowListing: A acquires while its reaper's read is under way.
func slowListing() Schedule {
	s := scene(from(11*sec, holdFor("a", minute)), from(12*sec, holdFor("a", minute)))
	s.Faults = []Fault{{Kind: DelayRequest, Process: 0, Op: fault.Held, At: 10 * sec, For: 4 * sec}}
	return s
}

// slowAcquire: the reply of A's acquire is under way during a tick of its reaper.
func slowAcquire() Schedule {
	s := scene(func(u *User) {
		u.Release(u.Try("a"))
		from(8*sec, holdFor("a", minute))(u)
	}, from(9*sec, holdFor("a", minute)))
	s.Faults = []Fault{{Kind: DelayReply, Process: 0, Op: fault.Acquire, Nth: 2, For: 4 * sec}}
	return s
}

// twins: B is started from a snapshot of A, with its process id, while A holds the lock.
func twins() Schedule {
	s := scene(holdFor("a", 2*minute), func(*User) {}, from(8*sec, holdFor("a", minute)))
	s.Processes[1].Start, s.Processes[1].Twin = 7*sec, true
	return s
}

// restored: B is started from a snapshot of A, which holds the lock, and acquires another. A's
// chores are slow, and its user gives a lost lock back; or the server is away when A releases what
// it takes for a ghost.
func restored(how Kind) Schedule {
	s := scene(holdLost("a"), func(u *User) {
		h, other := u.Try("a"), u.Try("b")
		u.Sleep(2 * minute)
		u.Release(other)
		u.Release(h)
	}, from(12*sec, holdFor("a", minute)), from(12*sec, holdFor("b", minute)))
	s.Processes[1] = Process{Users: s.Processes[1].Users, Start: 10500 * time.Millisecond, Twin: true,
		Snapshot: true}
	slow := func(op fault.Op, at time.Duration) Fault {
		return Fault{Kind: DelayRequest, Process: 0, Op: op, At: at, For: 4 * sec}
	}
	if s.Faults = []Fault{slow(fault.Held, 9*sec)}; how == Refuse {
		s.Faults = append(s.Faults, Fault{Kind: Refuse, Process: 0, Op: fault.Release, Nth: 1})
	} else { // the chores of the ping at 10 s begin late
		s.Faults = append(s.Faults, slow(fault.Held, 4*sec), slow(fault.Hello, 4*sec))
	}
	return s
}

// holdLost acquires a lock, holds it until it is lost and gives it back at once.
func holdLost(name string) func(*User) {
	return func(u *User) {
		h := u.Try(name)
		for h != nil && h.guard.Err() == nil && u.Sleep(sec/10) {
		}
		u.Release(h)
	}
}

// wokenTwin: A stops, B is started from a snapshot of it, and A wakes when its lock was lost by the
// clock; its user gives it back before a ping could tell of B.
func wokenTwin() Schedule {
	s := scene(holdLost("a"), func(u *User) {
		h := u.Try("a")
		u.Sleep(2 * minute)
		u.Release(h)
	}, from(13*sec, holdFor("a", minute)))
	s.Processes[1] = Process{Users: s.Processes[1].Users, Start: 13 * sec, Twin: true, Snapshot: true}
	s.Faults = []Fault{
		{Kind: Pause, Process: 0, At: 12 * sec, For: 50 * sec},
		{Kind: DelayRequest, Process: 0, Op: fault.Ping, At: 60 * sec, For: 4 * sec},
	}
	return s
}

// latePing: the network swallows two of A's pings and carries them out much later, behind one
// another and behind all that came after them, while A holds the lock.
func latePing() Schedule {
	s := scene(holdFor("a", 3*minute), from(8*sec, holdFor("a", minute)))
	s.Faults = []Fault{
		{Kind: ApplyLate, Process: 0, Op: fault.Ping, At: 12 * sec, For: 90 * sec},
		{Kind: ApplyLate, Process: 0, Op: fault.Ping, At: 13 * sec, For: 30 * sec},
	}
	return s
}

// lostAcquire: A's acquire is applied and its reply lost, or it vanishes with its reply.
func lostAcquire(how Kind) Schedule {
	s := scene(func(u *User) {
		u.Release(u.Try("a"))
		h := u.Try("a")
		if h == nil {
			u.Sleep(sec)
			h = u.Poll("a", minute)
		}
		if h != nil {
			u.Work(h, 30*sec)
			u.Release(h)
		}
	}, from(3*sec, holdFor("a", 10*sec)))
	s.Faults = []Fault{{Kind: how, Process: 0, Op: fault.Acquire, Nth: 2}}
	return s
}

// withoutState: somebody has written a lock without a state.
func withoutState() Schedule {
	s := scene(from(sec, func(u *User) { u.Release(u.Try("a")); u.Sleep(time.Hour) }))
	s.World = func(o *Outside) {
		o.Put(catalog.LocksCollection, "a", bson.D{
			{Key: "_id", Value: "a"}, {Key: "process", Value: "somebody"},
			{Key: "ts", Value: bson.NewObjectID()},
		})
	}
	return s
}

// election: A dies, and during B's watch another primary is elected.
func election() Schedule {
	s := scene(holdFor("a", minute), from(5*sec, holdFor("a", minute)))
	s.Timing.Mode = takeover.WatchOnly
	s.Faults = []Fault{
		{Kind: Crash, Process: 0, At: 12 * sec},
		{Kind: Elect, Process: 1, At: 50 * sec, For: 10 * minute},
	}
	return s
}

// foreignAgain: a foreign process whose ping stands still acquires again during B's watch.
func foreignAgain() Schedule {
	s := scene(from(5*sec, holdFor("a", minute)))
	s.Timing.Mode = takeover.WatchOnly
	s.World = func(o *Outside) {
		o.ForeignPing("mongos")
		o.ForeignLock("a", "mongos")
		o.At(50*sec, func() { o.ForeignLock("a", "mongos") })
	}
	return s
}

// foreignOverOurs: MongoDB's own manager takes a lock that A has released, and stops in order: it
// deletes its ping, and what it holds it keeps.
func foreignOverOurs() Schedule {
	s := scene(func(u *User) { u.Release(u.Try("a")); from(20*sec, holdFor("a", minute))(u) })
	s.Timing.Foreign, s.Length = 5*minute, 10*minute
	f := manager(Spell{To: 15 * sec, Orderly: true})
	f.Tasks[0].At = 10 * sec
	s.Foreign = []Foreign{f}
	return s
}

// deleted: somebody deletes the lock document while nobody holds the lock.
func deleted() Schedule {
	s := scene(func(u *User) {
		for _, at := range []time.Duration{2 * sec, 10 * sec, 20 * sec} {
			u.Until(at)
			u.Release(u.Try("a"))
		}
	})
	s.Faults = []Fault{{Kind: RemoveFree, At: 15 * sec}}
	return s
}

// oldPrimary: an old primary answers B's reads, while A pings the new one.
func oldPrimary() Schedule {
	s := scene(holdFor("a", 3*minute), from(6*sec, holdFor("a", minute)))
	s.Timing.Mode = takeover.WatchOnly
	s.Faults = []Fault{{Kind: OldPrimary, Process: 1, At: 12 * sec, For: 2 * minute}}
	return s
}

// readAgain: A stops when it is about to ask the server whether the lock is still its own, for so
// long that B condemns it; it runs again before B's overtake arrives, asks, and is answered when it
// pings under another process id.
func readAgain() Schedule {
	s := scene(func(u *User) {
		if h := u.Poll("a", minute); h != nil {
			for u.Sleep(sec / 2) {
				_ = u.Check(h)
			}
			u.Release(h)
		}
	}, from(5*sec, holdFor("a", minute)))
	s.Timing.Ping, s.Timing.Limit = 2*sec, 10*sec
	s.Faults = []Fault{
		{Kind: PauseBefore, Process: 0, Op: fault.Read, At: 9 * sec, For: 63 * sec},
		{Kind: DelayReply, Process: 0, Op: fault.Read, At: 9 * sec, For: 3 * sec},
		{Kind: DelayRequest, Process: 1, Op: fault.Overtake, Nth: 1, For: 9 * sec},
	}
	return s
}
