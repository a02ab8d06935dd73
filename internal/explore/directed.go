package explore

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/fault"
	"mongodlm/internal/mutant"
	"mongodlm/takeover"
)

// Directed returns the schedule that shows a mistake: with the mistake an oracle fires, without it
// none does. Where a promise is kept by two rules, the schedule takes the other one out of the way
// by a fault, or the oracle that fires is that of the rule itself.
func Directed(m mutant.Mistake) Schedule {
	s := directed[m]()
	s.Name = m.String()
	s.Mistakes = mutant.Only(m)
	return s
}

var directed = map[mutant.Mistake]func() Schedule{
	mutant.OvertakeByName:           twoHeirs,
	mutant.ReleaseByName:            func() Schedule { return outlived(Pause) },
	mutant.DeadlineFromReply:        slowLastPing,
	mutant.StopwatchBeforeFirstLook: slowFirstLook,
	mutant.StopwatchAfterLastLook:   slowLastLook,
	mutant.LateReplyRevives:         lateReply,
	mutant.HoldPastTakeover:         func() Schedule { return outlived(Cut) },
	mutant.OwnTakeoverOnly:          patientHolder,
	mutant.AgeByOwnClock:            wrongClock,
	mutant.NoReap:                   lateAcquire,
	mutant.TableBeforeRead:          slowListing,
	mutant.PendingAfterSend:         slowAcquire,
	mutant.UpsertingPing:            func() Schedule { return outlived(Pause) },
	mutant.ForkIgnored:              twins,
	mutant.UnknownIsNotHeld:         func() Schedule { return lostAcquire(LoseReply) },
	mutant.UnknownIsHeld:            func() Schedule { return lostAcquire(Drop) },
	mutant.LenientDecode:            withoutState,
	mutant.WriteConcernOne:          func() Schedule { return lostAcquire(Drop) },
	mutant.ElectionIgnored:          election,
	mutant.SessionChangeIgnored:     foreignAgain,
	mutant.TimerOnlyExpiry:          func() Schedule { return outlived(Pause) },
	mutant.FenceNotSeeded:           deleted,
	mutant.StaleLastLook:            oldPrimary,
	mutant.RevalidateByReading:      readAgain,
	mutant.ReleaseForgetsLine:       func() Schedule { return line(20 * sec) },
	mutant.NewcomerFirst:            func() Schedule { return line(20 * sec) },
	mutant.BuryByProcess:            twoBury,
	mutant.QuitterStays:             quitter,
	mutant.GrantAfterTerm:           func() Schedule { return streaming(heardTooLate()) },
	mutant.NoQuestionAfterOpening:   func() Schedule { return streaming(slowStream()) },
	mutant.BuriedByAge:              func() Schedule { return line(2 * minute) },
	mutant.LatePingCounts:           latePing,
	mutant.ForeignIsOurs:            foreignOverOurs,
}

// streaming lets streams of notices work.
func streaming(s Schedule) Schedule {
	s.Streams = true
	return s
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

// twoHeirs: A dies; B and C both see that its lock may be taken, and C's overtake arrives after
// B's.
func twoHeirs() Schedule {
	heir := from(5*sec, holdFor("a", minute))
	s := scene(holdFor("a", minute), heir, heir)
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

// slowLastLook: A dies, and the reply of B's last look is under way for long. Nobody knows the
// server's clock.
func slowLastLook() Schedule {
	s := scene(holdFor("a", 2*minute), from(5*sec, holdFor("a", minute)))
	s.NoServerTime = true
	s.Timing.Limit, s.Timing.MaxGap = 30*sec, minute
	s.Faults = []Fault{
		{Kind: Crash, Process: 0, At: 12 * sec},
		{Kind: DelayReply, Process: 1, Op: fault.Look, At: 60 * sec, For: 20 * sec},
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

// latePing: the network swallows two of A's pings and carries them out much later, behind one another
// and behind all that came after them, while A holds the lock.
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

// foreignOverOurs: MongoDB's own manager takes a lock that A has released, and stops in order: it deletes
// its ping, and what it holds it keeps.
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

// readAgain: A stops for so long that B condemns it; it runs again before B's overtake arrives, and
// asks the server whether the lock is still its own.
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
		{Kind: Pause, Process: 0, At: 10 * sec, For: 62 * sec},
		{Kind: DelayRequest, Process: 1, Op: fault.Overtake, Nth: 1, For: 9 * sec},
	}
	return s
}
