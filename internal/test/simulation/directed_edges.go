package simulation

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// Edges are the schedules of what lies right at the edges of the protocol, each named after what
// happens in it. Nothing is left to chance. Every one of them is to be played with streams of
// notices and without.
func Edges() []Schedule {
	named := func(name string, s Schedule) Schedule {
		s.Name = name
		return s
	}
	return []Schedule{
		named("a crowd beyond the line", crowd()),
		named("single callers beside a crowd", besideACrowd()),
		named("several locks in any order", inAnyOrder()),
		named("holders who wait for one another and say nothing", silentCircle()),
		named("circle of permits", circleOfPermits()),
		named("a permit that comes back", permitComesBack()),
		named("circle over a lost guard", circleOverLost()),
		named("circle of one", circleOfOne(How{Wait: time.Hour})),
		named("circle of one, as it says", circleOfOne(How{Wait: time.Hour})),
		named("context ends in line while the server hangs",
			hangsInLine(How{Wait: 8 * sec, Context: true})),
		named("WaitAtMost ends in line while the server hangs", hangsInLine(How{Wait: 8 * sec})),
		named("a ping applied late", pingLate(20*sec, minute)),
		named("a ping applied hours later", pingLate(20*sec, 2*time.Hour)),
		named("commands applied twice", twice()),
		named("a foreign manager beside a line", foreignInLine()),
		named("a line full of the dead", fullOfTheDead()),
		named("another limit of the dead, asked for", otherLimit(How{Permits: 5})),
		named("another limit of the dead, waited for", otherLimit(How{Wait: time.Hour, Permits: 5})),
		named("a semaphore of the dead, waited for as a lock", otherLimit(How{Wait: time.Hour})),
		named("a semaphore of the dead, asked for as a lock", otherLimit(How{})),
		named("context ends while the server hangs", hangs(How{Wait: sec, Context: true})),
		named("WaitAtMost ends while the server hangs", hangs(How{Wait: sec})),
		named("close with an ended context", closed(0)),
		named("close in a tenth of a second while the server hangs", closedHanging(100*time.Millisecond)),
		named("close during work", closed(time.Minute)),
		named("a lock that is waited for becomes unreadable", damaged()),
		named("a foreign manager that stops and starts again", foreignPause(true)),
		named("a foreign manager whose ping is there while it stops", foreignPause(false)),
		named("a foreign manager that does not come back", foreignEnds()),
		named("lost during work, then closed", lostThenClosed()),
		named("a transaction inside of itself", nestedTransaction()),
		named("a transaction beside those who want its lock", besideTransactions()),
		named("tries beside a waiter", besideAWaiter()),
		named("a job with a lease hangs", hangs40(How{Wait: time.Hour})),
		named("a job with a lease hangs, asked for by tries", hangs40(How{})),
		named("a lease is renewed", renewing()),
		named("a renewal in a transaction that fails", uncommittedRenewal()),
		named("transactions among visitors", amongVisitors(How{})),
		named("renewals in transactions among visitors", amongVisitors(How{Lease: life})),
		named("a renewal's reply is slow", slowRenewal()),
		named("a renewal applied right before the takeover", lateRenewal()),
		named("a holder with a lease stops", leasePaused()),
		named("a holder stops before its lease has begun", leaseNotBegun()),
		named("a lease granted in line, heard late", leaseHeardLate()),
		named("a permit with a lease hangs", permitHangs()),
	}
}

// crowd: three processes have more waiters than the line has room for; one of them dies, and one is
// cut off for a while.
func crowd() Schedule {
	s := scene()
	for range 3 {
		p := Process{}
		for range catalog.MaxWaiters/2 - 10 {
			p.Users = append(p.Users, from(sec, waitFor("a", sec/2)))
		}
		s.Processes = append(s.Processes, p)
	}
	s.Faults = []Fault{
		{Kind: Cut, Process: 1, At: 10 * sec, For: 8 * sec}, {Kind: Crash, Process: 2, At: 20 * sec},
	}
	s.Length = 4 * minute
	return s
}

// besideACrowd: a process has more callers than the line has places, and two have one each; all
// come again as soon as they had their turn.
func besideACrowd() Schedule {
	again := func(u *User) {
		for u.p.w.Now() < 15*sec {
			h := u.Acquire("a", How{Wait: time.Hour})
			if h == nil {
				return
			}
			u.Sleep(sec / 20)
			u.Release(h)
		}
	}
	s := scene(again, from(2*sec, again), from(3*sec, again))
	for range catalog.MaxWaiters + 10 {
		s.Processes[0].Users = append(s.Processes[0].Users, from(sec, again))
	}
	s.Length = 25 * sec
	return s
}

// inAnyOrder: several users of three processes acquire several locks at once, others one each.
func inAnyOrder() Schedule {
	all := func(names ...string) func(*User) {
		return func(u *User) {
			for range 3 {
				held := u.LockAll(names, time.Hour)
				u.Sleep(3 * sec)
				u.ReleaseAll(held)
			}
		}
	}
	s := scene(all("a", "b"), all("b", "a"), all("c", "a", "b"))
	for i := range s.Processes {
		s.Processes[i].Users = append(s.Processes[i].Users, all("b", "c"),
			from(sec, waitFor("c", 3*sec)), from(2*sec, waitFor("a", 3*sec)))
	}
	return s
}

// silentCircle: two hold what the other one waits for, and nobody says so: they may be of any two
// goroutines, so nobody is told of a deadlock.
func silentCircle() Schedule {
	return circle(How{Wait: 40 * sec, Silent: true})
}

// circleOfPermits: two hold a permit of a and want one of b, two the other way round.
func circleOfPermits() Schedule {
	both := func(first, second string) func(*User) {
		return func(u *User) {
			how := How{Wait: time.Hour, Permits: 2}
			h := u.Acquire(first, how)
			if h != nil && u.Sleep(5*sec) {
				how.Under = h
				u.Release(u.Acquire(second, how))
			}
			u.Release(h)
		}
	}
	return scene(both("a", "b"), both("a", "b"), from(sec, both("b", "a")), from(sec, both("b", "a")))
}

// permitComesBack: A holds a permit of a and waits for b, whose holder B waits for a permit of a;
// but C gives one back.
func permitComesBack() Schedule {
	permit, wait := How{Wait: time.Hour, Permits: 2}, How{Wait: time.Hour}
	under := func(first, second string, one, other How) func(*User) {
		return func(u *User) {
			h := u.Acquire(first, one)
			if h != nil && u.Sleep(5*sec) {
				other.Under = h
				u.Release(u.Acquire(second, other))
			}
			u.Release(h)
		}
	}
	return scene(under("a", "b", permit, wait), from(sec, under("b", "a", wait, permit)),
		withHow("a", permit, 40*sec))
}

// circleOverLost: A has no answers until its guard of b is lost, but its pings arrive, so nobody
// takes b from it. Then it waits for a, whose holder C waits for b: what is lost and not given back
// is in the way all the same.
func circleOverLost() Schedule {
	both := func(first, second string, at time.Duration) func(*User) {
		return func(u *User) {
			h := u.Acquire(first, How{Wait: time.Hour})
			if h != nil && u.Until(at) {
				u.Release(u.Acquire(second, How{Wait: time.Hour, Under: h}))
			}
			u.Release(h)
		}
	}
	s := scene(both("b", "a", 80*sec), from(5*sec, both("a", "b", 10*sec)))
	s.Length = 4 * minute
	s.Faults = []Fault{{Kind: Deaf, Process: 0, At: 12 * sec, For: 60 * sec}}
	return s
}

// circleOfOne: who holds a lock waits for it.
func circleOfOne(how How) Schedule {
	return scene(func(u *User) {
		h := u.Try("a")
		if h != nil {
			how.Under = h
			u.Release(u.Acquire("a", how))
		}
		u.Release(h)
	})
}

// hangsInLine: A waits in line when the server stops to answer.
func hangsInLine(how How) Schedule {
	s := scene(from(3*sec, withHow("a", how, sec)), waitFor("a", time.Minute))
	s.Faults = []Fault{{Kind: Hang, Process: 0, At: 6 * sec, For: 20 * sec}}
	return s
}

// pingLate: a ping of A is lost on the way and carried out later, others in between.
func pingLate(at, late time.Duration) Schedule {
	s := scene(waitFor("a", at+late+30*sec))
	s.Timing = Coarse()
	s.Length = at + late + minute
	s.Faults = []Fault{{Kind: ApplyLate, Process: 0, Op: fault.Ping, Nth: 2, For: late}}
	return s
}

// twice: every kind of write is applied twice, the copy when others hold and wait.
func twice() Schedule {
	s := line(20 * sec)
	s.Length = 4 * minute
	s.Faults = []Fault{{Kind: Crash, Process: 1, At: 30 * sec}}
	for p := range 3 {
		for i, op := range []fault.Op{
			fault.Enter, fault.Ping, fault.Release, fault.Evict, fault.Condemn, fault.SeedFence,
			fault.GrantNext,
		} {
			s.Faults = append(s.Faults,
				Fault{Kind: Duplicate, Process: p, Op: op, Nth: 1, For: time.Duration(7+9*i+3*p) * sec})
		}
	}
	return s
}

// manager is MongoDB's own, holding "a" from 2 s on.
func manager(spells ...Spell) Foreign {
	return Foreign{
		Process: "ConfigServer", Spells: spells, Tasks: []Task{{At: 2 * sec, Name: "a", For: 5 * minute}},
	}
}

// foreignInLine: the manager takes and frees the lock again and again where others wait in line.
func foreignInLine() Schedule {
	s := line(20 * sec)
	s.Length = 6 * minute
	f := manager(Spell{To: time.Hour})
	f.Tasks = nil
	for i := range 6 {
		f.Tasks = append(f.Tasks, Task{At: time.Duration(10+20*i) * sec, Name: "a", For: 15 * sec})
	}
	s.Foreign = []Foreign{f}
	s.Processes = append(s.Processes, Process{Users: []func(*User){
		from(7*sec, withHow("a", How{Wait: time.Hour, Shared: true}, 20*sec)),
		from(8*sec, withHow("a", How{Wait: time.Hour, Shared: true}, 20*sec)),
	}})
	s.Faults = []Fault{{Kind: Crash, Process: 2, At: 100 * sec}}
	return s
}

// besideAWaiter: while B waits for a lock, another user of it has short turns of another one:
// nothing that it acquires is taken for a ghost.
func besideAWaiter() Schedule {
	quick := func(u *User) {
		for range 20 {
			u.Release(u.Acquire("b", How{Shared: true}))
			u.Sleep(200 * time.Millisecond)
		}
	}
	s := scene(waitFor("a", 20*sec), from(2*sec, waitFor("a", sec)))
	s.Processes[1].Users = append(s.Processes[1].Users, from(3*sec, quick), from(3*sec, quick))
	s.Length = minute
	return s
}

// fullOfTheDead: A holds the lock, and others of it fill the line; it dies.
func fullOfTheDead() Schedule {
	s := scene(waitFor("a", time.Hour), from(10*sec, waitFor("a", 10*sec)))
	for range catalog.MaxWaiters {
		s.Processes[0].Users = append(s.Processes[0].Users, from(sec, waitFor("a", time.Hour)))
	}
	s.Length = 4 * minute
	s.Faults = []Fault{{Kind: Crash, Process: 0, At: 12 * sec}}
	return s
}

// otherLimit: A holds one of three permits and dies; B asks otherwise, again and again.
func otherLimit(how How) Schedule {
	s := scene(withHow("a", How{Wait: time.Hour, Permits: 3}, time.Hour), from(5*sec, func(u *User) {
		if h := u.Ask("a", how, time.Hour); h != nil {
			u.Work(h, 5*sec)
			u.Release(h)
		}
	}))
	s.Length = 4 * minute
	s.Faults = []Fault{{Kind: Crash, Process: 0, At: 12 * sec}}
	return s
}

// hangs: the server does not answer A any more, which has a second.
func hangs(how How) Schedule {
	s := scene(from(12*sec, withHow("a", how, sec)))
	s.Faults = []Fault{{Kind: Hang, Process: 0, At: 11 * sec, For: 20 * sec}}
	return s
}

// closed: A closes while it works under a lock and others of it wait; B wants it.
func closed(limit time.Duration) Schedule {
	s := line(time.Minute)
	s.Processes[0].Users = append(s.Processes[0].Users, from(sec, waitFor("a", minute)),
		from(2*sec, func(u *User) { u.Do("b", How{}, minute) }))
	s.Faults = []Fault{{Kind: Close, Process: 0, At: 10 * sec, For: limit}}
	return s
}

// closedHanging: the server hangs when A closes.
func closedHanging(limit time.Duration) Schedule {
	s := closed(limit)
	s.Faults = append(s.Faults, Fault{Kind: Hang, Process: 0, At: 9 * sec, For: minute})
	return s
}

// damaged: a hand writes a state that is no number into a lock for which B waits.
func damaged() Schedule {
	s := scene(waitFor("a", 20*sec), from(5*sec, waitFor("a", sec)))
	s.World = func(o *Outside) {
		o.At(10*sec, func() {
			o.Put(catalog.LocksCollection, "a", bson.D{
				{Key: "_id", Value: "a"}, {Key: "state", Value: "held"}, {Key: "ts", Value: bson.NewObjectID()},
			})
		})
	}
	return s
}

// foreignPause: the manager stops and deletes its ping, or leaves it, and is back before its time
// is up. What it holds it holds on.
func foreignPause(orderly bool) Schedule {
	s := scene(from(5*sec, waitFor("a", 10*sec)), from(6*sec, func(u *User) {
		u.Release(u.Poll("a", time.Hour))
	}))
	s.Timing.Foreign = 2 * minute
	s.Length = 8 * minute
	s.Foreign = []Foreign{manager(Spell{To: 20 * sec, Orderly: orderly},
		Spell{From: 110 * sec, To: time.Hour})}
	return s
}

// foreignEnds: the manager stops, deletes its ping and never comes back.
func foreignEnds() Schedule {
	s := foreignPause(true)
	s.Foreign = []Foreign{manager(Spell{To: 20 * sec, Orderly: true})}
	return s
}

// nestedTransaction: work in a transaction of a guard calls for another one of it.
func nestedTransaction() Schedule {
	return scene(func(u *User) {
		if h := u.Try("a"); h != nil {
			u.InTransaction(h, sec, 10*sec, true)
			u.Release(h)
		}
	})
}

// besideTransactions: A works under its guard in transactions, others want the lock meanwhile, by a
// guard and in a transaction of their own; in the end A dies in the middle of one.
func besideTransactions() Schedule {
	s := scene(func(u *User) {
		for range 20 {
			if h := u.Lock("a", minute); h != nil {
				u.InTransaction(h, 3*sec, minute, false)
				u.Release(h)
			}
		}
	}, from(2*sec, func(u *User) {
		for range 10 {
			if h := u.Lock("a", minute); h != nil {
				u.InTransaction(h, sec, 500*time.Millisecond, false)
				u.Release(h)
			}
		}
	}), from(3*sec, func(u *User) {
		for range 10 {
			u.LockInTransaction("a", 2*sec, minute)
			u.Sleep(sec)
		}
	}))
	s.Length = 5 * minute
	s.Faults = []Fault{
		{Kind: LoseReply, Process: 0, Op: opCommit, Nth: 2},
		{Kind: LoseReply, Process: 2, Op: opCommit, Nth: 1},
		{Kind: CrashBefore, Process: 0, Op: opCommit, Nth: 4},
		{Kind: PauseBefore, Process: 2, Op: opCommit, Nth: 3, For: 80 * sec},
	}
	return s
}

// lostThenClosed: A is cut off for longer than its term, B takes over, and A closes before its work
// ends.
func lostThenClosed() Schedule {
	work := func(u *User) {
		if h := u.Poll("a", minute); h != nil {
			clockSleep(u, 2*minute)
			u.Release(h)
		}
	}
	s := scene(work, from(5*sec, holdFor("a", minute)))
	s.Length = 4 * minute
	s.Faults = []Fault{
		{Kind: Cut, Process: 0, At: 12 * sec, For: 80 * sec},
		{Kind: Close, Process: 0, At: 100 * sec, For: minute},
	}
	return s
}

// clockSleep sleeps whether or not the process was closed meanwhile.
func clockSleep(u *User, d time.Duration) {
	end := u.p.w.Now() + d
	for u.p.w.Now() < end && u.p.ctx.Err() == nil {
		u.Sleep(end - u.p.w.Now())
	}
}

// Named returns the schedule of that name among the tries, edges and lines.
func Named(name string) (Schedule, error) {
	for _, s := range slices.Concat(Tries(), Edges(), Lines()) {
		if s.Name == name {
			return s, nil
		}
	}
	return Schedule{}, fmt.Errorf("no schedule is named %q", name)
}
