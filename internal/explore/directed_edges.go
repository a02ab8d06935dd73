package explore

import (
	"fmt"
	"time"

	"mongodlm/internal/fault"
)

// Edges are the schedules of what lies right at the edges of the protocol, each named after what
// happens in it. Nothing is left to chance. Every one of them is to be played with streams of notices
// and without.
func Edges() []Schedule {
	named := func(name string, s Schedule) Schedule {
		s.Name = name
		return s
	}
	return []Schedule{
		named("a crowd beyond the line", crowd()),
		named("several locks in any order", inAnyOrder()),
		named("holders who wait for one another and say nothing", silentCircle()),
		named("circle of permits", circleOfPermits()),
		named("circle of one", circleOfOne(How{Wait: time.Hour})),
		named("circle of one, as it says", circleOfOne(How{Wait: time.Hour, Says: true})),
		named("context ends in line while the server hangs", hangsInLine(How{Wait: 8 * sec, Context: true})),
		named("WaitAtMost ends in line while the server hangs", hangsInLine(How{Wait: 8 * sec})),
		named("a ping applied late", pingLate(20*sec, minute)),
		named("a ping applied hours later", pingLate(20*sec, 2*time.Hour)),
		named("commands applied twice", twice()),
		named("a foreign manager beside a line", foreignInLine()),
		named("tries beside a waiter", besideAWaiter()),
	}
}

// crowd: many more than the line has room for, of three processes.
func crowd() Schedule {
	s := scene()
	s.MaxWaiters = 3
	for i := range 3 {
		p := Process{}
		for range 4 {
			p.Users = append(p.Users, from(time.Duration(i)*sec, waitFor("a", 3*sec)))
		}
		s.Processes = append(s.Processes, p)
	}
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
			fault.Enter, fault.Ping, fault.Release, fault.Bury, fault.Condemn, fault.SeedFence, fault.Settle,
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

// besideAWaiter: while B waits for a lock, another user of it has short turns of another one: nothing
// that it acquires is taken for a ghost.
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

// Named returns the schedule of that name among the edges and lines.
func Named(name string) (Schedule, error) {
	for _, s := range append(Edges(), Lines()...) {
		if s.Name == name {
			return s, nil
		}
	}
	return Schedule{}, fmt.Errorf("no schedule is named %q", name)
}
