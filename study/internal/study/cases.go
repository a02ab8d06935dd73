package study

import "time"

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
	Play   func(*Stage)
}

// Cases returns all cases, in the order of the course.
func Cases() []Case {
	var all []Case
	for _, some := range [][]Case{clocks(), pingsOf(), takeovers(), releases(), outcomes(), limits()} {
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
		Story: "A holds the lock and dies; B waits for it, and its clock is two hours behind.",
		Wrong: "For 1.8 a ping in the future is never old, so B waits for more than two hours for a dead holder.",
		Rule:  "Since 2.0 only the passing of time on one clock counts, and that passes on a clock that is wrong, too.",
		Where: "takeover/witnesses.go backwards",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Ahead(-2*h)
			a.Wants(1*s, no, 1*h)
			a.Dies(5 * m)
			b.Wants(6*m, 65*m, 5*m)
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
		Wrong: "Every ping says 12:02, so all three generations take A for dead and let B in.",
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
		Story: "A holds the lock and pings; between two pings the server's clock steps ahead by 20 minutes.",
		Wrong: "2.0 and 3.2 ask one clock, the server's: it says that the ping stood still for 20 minutes, and B takes the lock.",
		Rule:  "1.8 asked another clock; ours counts the smaller of the server's and the contender's own, so no single clock is enough.",
		Where: "takeover/elapsed.go byOwnClock",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
			st.ServerClock(10*m+10*s, 20*m)
		},
	}, {
		Name: "election-clock", Title: "A new primary's clock is 20 minutes ahead", Hole: "one clock", Length: 33 * m,
		Story: "A holds the lock; an election makes another server primary, whose clock is 20 minutes ahead.",
		Wrong: "2.0 knows no elections: for it the first server's clock has moved by 20 minutes, and B takes the lock.",
		Rule:  "3.2 remembers the election and watches anew, and so does ours, which asks once more before it takes.",
		Where: "takeover/change.go moved",
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
		Wrong: "In 1.8 and 2.0 the thread ends and is never started again: A works on, and its lock is taken.",
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
		Wrong: "A ping speaks for the process and not for the work, so in all three generations nobody ever gets the lock.",
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
