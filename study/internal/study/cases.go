package study

import (
	"maps"
	"time"
)

// A Case is one way in which a lock may go wrong: who takes part, whose clock is how wrong, what
// stops, what is cut off, what an operator does.
type Case struct {
	Name  string // as on the command line
	Title string
	Hole  string // the hole of docs/semantics.md that it shows
	// Story is what happens, Rule is what stops it: in later generations, and in ours. One sentence
	// each.
	Story, Wrong, Rule string
	// Where is the function of ours that does it: file and name.
	Where  string
	Length time.Duration
	// Not says why some generations cannot play it, by their names.
	Not  map[string]string
	Play func(*Stage)
	// Set are the knobs that were set otherwise, as NAME=VALUE: see With.
	Set   []string
	turns []turn
	// unseen says that only the outcome is wanted, and no record.
	unseen bool
}

// The files of the server's source in which most of it stands, by generation.
const (
	file16    = "r1.6.5 client/distlock.cpp:"
	file18    = "r1.8.5 client/distlock.cpp:"
	file20    = "r2.0.9 client/distlock.cpp:"
	file26    = "r2.6.12 src/mongo/s/distlock.cpp:"
	catalog32 = "r3.2.22 src/mongo/s/catalog/replset/dist_lock_catalog_impl.cpp:"
)

// not says why generations cannot play a case, by the line of each that makes it so. For ours it is the
// function of the case.
func not(why string, lines map[string]string) map[string]string {
	all := map[string]string{}
	for name, line := range lines {
		all[name] = why + " (" + line + ")"
	}
	return all
}

// noElections: they come with the replica set of 3.2.
func noElections() map[string]string {
	return not("its config servers are mirrored, and elect nobody", map[string]string{
		"1.6": "r1.6.5 client/syncclusterconnection.cpp:282", "1.8": "r1.8.5 client/syncclusterconnection.cpp:287",
		"2.0": "r2.0.9 client/syncclusterconnection.cpp:298", "2.6": "r2.6.12 src/mongo/client/syncclusterconnection.cpp:420"})
}

// noMirrors: a replica set is asked by its primary.
func noMirrors() map[string]string {
	return not("its config servers are a replica set, and the primary's clock is the only one",
		map[string]string{"3.2": catalog32 + "64", Ours: ""})
}

// noRoles: sessions and process ids of roles come with 3.4 and 5.0.
func noRoles() map[string]string {
	return not("its sessions and process ids belong to no role", map[string]string{
		"1.6": file16 + "156", "1.8": file18 + "252", "2.0": file20 + "702", "2.6": file26 + "852", Ours: ""})
}

func merged(a, b map[string]string) map[string]string {
	maps.Copy(a, b)
	return a
}

// Cases returns all cases, in the order of the course.
func Cases() []Case {
	var all []Case
	for _, some := range [][]Case{clocks(), pingsOf(), takeovers(), releases(), outcomes(), apart(), limits()} {
		all = append(all, some...)
	}
	return all
}

const (
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
	no = 0 * s
)

// clocks are the cases of wrong clocks.
func clocks() []Case {
	return []Case{{
		Name: "clock-ahead", Title: "A contender's clock is 20 minutes ahead", Hole: "H5", Length: 33 * m,
		Story: "A holds the lock and pings; B comes, and its clock is 20 minutes ahead.",
		Wrong: "1.8 compares B's clock with the ping that A's clock wrote, finds A dead at the first look, and takes the lock of a living holder.",
		Rule:  "Since 2.0 no clock of one machine is compared with that of another: the ping must stand still by one clock; ours asks three witnesses.",
		Where: "takeover/decide.go Decide",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Ahead(20*m)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "clock-behind", Title: "A contender's clock is two hours behind", Hole: "H6", Length: 75 * m,
		Story: "A holds the lock, B waits for it, and its clock is two hours behind; then A dies.",
		Wrong: "For 1.8 a ping in the future is never old, so B waits for more than two hours for a dead holder; 1.6 subtracts without a sign, finds it ancient, and robs the living A.",
		Rule:  "Since 2.0 only the passing of time on one clock counts, and that passes on a clock that is wrong, too.",
		Where: "takeover/witnesses.go backwards",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Ahead(-2*h)
			a.Wants(1*s, no, 1*h)
			a.Dies(5 * m)
			b.Wants(3*m, 68*m, 5*m)
		},
	}, {
		Name: "clock-steps-back", Title: "The holder's clock steps back by 20 minutes", Hole: "H7", Length: 33 * m,
		Story: "A holds the lock; its clock is set back by 20 minutes while it works and pings.",
		Wrong: "1.8 sees pings that are 20 minutes old although they come every 30 seconds, and B takes the lock.",
		Rule:  "Since 2.0 the value of a ping means nothing, only that it changes; ours has the server stamp it.",
		Where: "pinger/ping.go Ping",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 24*m)
			a.ClockSteps(10*m, -20*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "clock-stands", Title: "The holder's clock stands still", Hole: "G2-3", Length: 33 * m,
		Story: "A holds the lock; its clock stops at 12:02, and it goes on to work and to ping.",
		Wrong: "Every ping says 12:02, so all old generations take A for dead and let B in.",
		Rule:  "Ours numbers the pings: what must not change is a number, which no clock makes.",
		Where: "takeover/change.go changed",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 24*m)
			a.ClockStands(2 * m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "server-clock-steps", Title: "The server's clock steps ahead by 20 minutes", Hole: "one clock", Length: 33 * m,
		Story: "A holds the lock and pings; B tries once a second; between two pings the server's clock steps ahead by 20 minutes.",
		Wrong: "2.0 to 3.2 ask one clock, the server's: it says that the ping stood still for 20 minutes, and B takes the lock.",
		Rule:  "1.8 asked another clock; ours counts the smaller of the server's and the contender's own, so no single clock is enough.",
		Where: "takeover/elapsed.go byOwnClock",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Tries(1*s)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
			st.ServerClock(10*m+10*s, 20*m)
		},
	}, {
		Name: "server-clock-mirrored", Title: "The same, with three mirrored config servers", Hole: "one clock", Length: 33 * m,
		Story: "A holds the lock and pings; B tries once a second; the first of three config servers steps ahead by 20 minutes.",
		Wrong: "1.8 asks no server, and nobody compares their clocks.",
		Rule:  "2.0 and 2.6 compare the clocks of all three before they force (r2.0.9 client/distlock.cpp:603), and throw 14023.",
		Where: "takeover/elapsed.go byOwnClock",
		Not:   noMirrors(),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Tries(1*s)
			st.Mirrors(no, no)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
			st.ServerClock(10*m+10*s, 20*m)
		},
	}, {
		Name: "server-clock-corrected", Title: "The server's clock goes back, and is corrected", Hole: "G2-5", Length: 33 * m,
		Story: "The first server's clock goes back by 20 minutes and later ahead again; A holds the lock and pings, B tries once a second.",
		Wrong: "2.0 and 2.6 compare the servers' clocks at the first lock and at the force only: by then all is right, and 20 minutes have passed on one; 3.2 asks the primary only.",
		Rule:  "1.8 asked another clock; ours compares the server's with the contender's own at every decision.",
		Where: "takeover/elapsed.go byOwnClock",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Tries(1*s)
			st.Mirrors(no, no)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
			st.ServerClock(5*m+10*s, -20*m)
			st.ServerClock(10*m+10*s, 20*m)
		},
	}, {
		Name: "config-clocks-apart", Title: "One config server's clock is a minute ahead", Hole: "G2-5", Length: 33 * m,
		Story: "One of three mirrored config servers is a minute ahead; A wants the lock, which nobody has.",
		Wrong: "2.0 and 2.6 compare the servers' clocks before the first ping (r2.0.9 client/distlock.cpp:235) and throw 13650: nobody gets any lock.",
		Rule:  "1.8 does not compare them; ours refuses nobody a free lock because of a clock.",
		Where: "takeover/decide.go Decide",
		Not:   noMirrors(),
		Play: func(st *Stage) {
			st.Mirrors(no, 1*m)
			st.Process("A").Wants(1*s, 20*m, 5*m)
		},
	}, {
		Name: "clock-check-hangs", Title: "The answer of a config server's clock hangs", Hole: "G2-7", Length: 33 * m,
		Story: "A takes some lock for the first time, and the question for one server's clock hangs for 20 minutes; another thread wants this lock, which nobody has.",
		Wrong: "2.0 and 2.6 ask under the mutex of the ping thread (r2.0.9 client/distlock.cpp:224), which the first lock_try of a lock object needs, and no limit ends the question.",
		Rule:  "1.8 asks no server; 3.2 asks without a mutex; ours waits 5 seconds for a command, and sends none under a mutex.",
		Where: "pinger/reaper.go choreLoop",
		Not: merged(not("it asks no server for the time", map[string]string{"1.6": file16 + "138", "1.8": file18 + "209"}),
			noMirrors()),
		Play: func(st *Stage) {
			a := st.Process("A")
			st.Mirrors(no, no)
			a.Strikes(delayed, Clock, 1, no, 20*m)
			a.Wants(1*m, 30*m, 5*m)
		},
	}, {
		Name: "election-clock", Title: "A new primary's clock is 20 minutes ahead", Hole: "one clock", Length: 33 * m,
		Story: "A holds the lock; an election makes another server primary, whose clock is 20 minutes ahead.",
		Wrong: "A watch that went on under the new primary would see 20 minutes pass at once, and B would take the lock.",
		Rule:  "3.2 remembers the election and watches anew, and so does ours, which asks once more before it takes.",
		Where: "takeover/change.go moved",
		Not:   noElections(),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
			st.Election(10*m+10*s, 20*m)
		},
	}}
}

// pingsOf are the cases of pings that do not tell who is alive.
func pingsOf() []Case {
	return []Case{{
		Name: "before-first-ping", Title: "The lock is taken before the first ping", Hole: "H12", Length: 60 * m,
		Story: "A starts, its first ping fails, it takes the lock all the same and dies.",
		Wrong: "1.8 finds no ping document, asks for a person's help, and the lock is held for ever.",
		Rule:  "Since 2.0 no ping counts as a very old one; ours does not start before its first ping was acknowledged.",
		Where: "pinger/pinger.go Start",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Strikes(refused, Ping, 1, no, no)
			a.Wants(10*s, no, 1*h)
			a.Dies(20 * s)
			b.Wants(1*m, 55*m, 5*m)
		},
	}, {
		Name: "ping-pruned", Title: "A clock five days ahead deletes a living process's ping", Hole: "H13", Length: 60 * m,
		Story: "C's clock is five days ahead, and it tidies up; then A takes the lock and dies before its next ping.",
		Wrong: "1.8 deletes A's ping by C's clock, since no lock names A yet, and after that the lock is held for ever.",
		Rule:  "Since 2.0 a ping that is gone counts as one that does not change; 3.2 deletes none; ours asks the server's clock.",
		Where: "catalog/mongocatalog/pings.go pruneBatch",
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C").From(40*s).Ahead(5*24*h)
			a.Wants(45*s, no, 1*h)
			a.Dies(50 * s)
			b.Wants(2*m, 55*m, 5*m)
			_ = c
		},
	}, {
		Name: "ping-thread-ends", Title: "The thread of the pings ends", Hole: "H16", Length: 33 * m,
		Story: "A holds the lock; an exception that nobody catches comes out of one of its pings.",
		Wrong: "Up to 2.6 the thread ends and is never started again: A works on, and its lock is taken.",
		Rule:  "3.2 knows no such exceptions; in ours each ping recovers from a panic, and without pings the holder stops in time.",
		Where: "pinger/pinger.go guarded",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 24*m)
			a.Strikes(throws, Ping, 0, 2*m, no)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "hung-thread", Title: "The thread that holds the lock hangs", Hole: "H9", Length: 40 * m,
		Story: "A's thread hangs after five minutes of work; the process lives and pings.",
		Wrong: "A ping speaks for the process and not for the work, so in all old generations nobody ever gets the lock.",
		Rule:  "Ours lets a lock have a lease of its own, here of five minutes, which the work itself renews; without one it waits, too.",
		Where: "distlock/lease.go Renew",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 35*m).Hangs(5 * m).Leased(5 * m)
			b.Wants(6*m, 25*m, 5*m)
		},
	}, {
		Name: "twin-ids", Title: "Two processes have one id", Hole: "H15", Length: 60 * m,
		Story: "A and C start on one host in the same second; A takes the lock and dies; C lives, and pings.",
		Wrong: "The ids of 1.8 are host, second and a constant: C pings for the dead A, and B never gets the lock.",
		Rule:  "Since 2.0 the id has the port; ours has a random UUID, and a number that finds a twin.",
		Where: "pinger/ping.go verdict",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			st.Process("C").SameHost(a)
			a.Wants(1*s, no, 1*h)
			a.Dies(5 * m)
			b.Wants(6*m, 50*m, 5*m)
		},
	}}
}
