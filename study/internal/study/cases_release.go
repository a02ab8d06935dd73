package study

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const ms = time.Millisecond

// n is a number of something that lasts.
func n(i int) time.Duration { return time.Duration(i) }

// releases are the cases of locks that are given back.
func releases() []Case {
	return []Case{{
		Name: "release-by-id", Title: "A release frees the next holder's lock", Hole: "H2", Length: 60 * m,
		Story: "A stands still for 20 minutes, loses its lock to B, wakes, finishes and releases; C wants the lock then.",
		Wrong: "1.8 releases by _id alone: A's release frees B's lock, and C takes it while B works.",
		Rule:  "Since 2.0 a release names its session and matches nothing here.",
		Where: "distlock/release.go release",
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			a.Wants(1*s, no, 10*m)
			a.Pauses(2*m, 20*m)
			b.Wants(3*m, 30*m, 25*m)
			c.Wants(23*m, 30*m, 5*m)
		},
	}, {
		Name: "release-repeated", Title: "The reply of a release is lost", Hole: "H3", Length: 45 * m,
		Story: "A's release is carried out, the reply never comes; B takes the lock; A releases once more.",
		Wrong: "The second release of 1.8 frees B's lock, and C takes it.",
		Rule:  "Since 2.0 a release names its session, so it may be repeated.",
		Where: "distlock/release.go tryRelease",
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			a.Wants(1*s, no, 5*m)
			a.Strikes(replyLost, Release, 1, no, no)
			b.Wants(5*m+2*s, 10*m, 20*m)
			c.Wants(5*m+10*s, 35*m, 5*m)
		},
	}, {
		Name: "release-read-fails", Title: "The read after a release fails", Hole: "H4", Length: 45 * m,
		Story: "A's release is carried out and answered; the read after it, for the log, fails; B takes the lock; A releases once more.",
		Wrong: "For 1.8 a failed read is a failed release (r1.8.5 client/distlock.cpp:320): the second one frees B's lock, and C takes it.",
		Rule:  "From 2.0 on a release reads nothing, and names its session.",
		Where: "distlock/release.go tryRelease",
		Not: not("its release reads nothing", map[string]string{"2.0": file20 + "914", "2.6": file26 + "1089",
			"3.2": "r3.2.22 " + manager32 + ":417", Ours: ""}),
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			a.Wants(1*s, no, 5*m)
			a.Strikes(refused, Reread, 0, 4*m, no)
			b.Wants(5*m+2*s, 10*m, 20*m)
			c.Wants(5*m+10*s, 35*m, 5*m)
		},
	}, {
		Name: "release-twice", Title: "A lock is released twice", Hole: "H23", Length: 45 * m,
		Story: "A releases, B takes the lock, and A's guard is released once more, as by a copy of it.",
		Wrong: "In 1.8 nothing ties an unlock to a lock that is held: the second one frees B's, and C takes it.",
		Rule:  "Since 2.0 a release names its session; in ours the second one is not even sent.",
		Where: "distlock/release.go Release",
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			a.Wants(1*s, no, 5*m).ReleasesTwice(1 * m)
			b.Wants(5*m+2*s, 10*m, 20*m)
			c.Wants(5*m+30*s, 35*m, 5*m)
		},
	}, {
		Name: "release-fails", Title: "A release fails three times", Hole: "H10", Length: 60 * m,
		Story: "A is cut off for half a minute just when it releases; then it lives on, and pings.",
		Wrong: "1.8 tries three times and never again, 2.0 to 2.4 twice, and A's pings keep the lock that nobody holds.",
		Rule:  "2.0 has a queue for the ping loop, but with one config server its second try throws past it; since 2.6 none does.",
		Where: "pinger/release_queue.go ReleaseLater",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 5*m)
			a.CutOff(5*m+1*s-40*ms, 30*s)
			b.Wants(5*m+20*s, 50*m, 5*m)
		},
	}, {
		Name: "release-elsewhere", Title: "A late release is sent to another cluster", Hole: "G2-6", Length: 60 * m,
		Story: "A locks in two clusters; its release in this one, of three config servers, fails three times, and its ping thread for the other comes first.",
		Wrong: "The queue of 2.0 to 3.0 is the process's: the thread of the other cluster sends the release there, where nothing matches, and drops it.",
		Rule:  "1.8 has no queue at all; that of 3.2, and ours, belongs to the lock manager of one cluster.",
		Where: "pinger/release_queue.go ReleaseLater",
		Play: func(st *Stage) {
			a, b := st.Process("A").Elsewhere(), st.Process("B")
			st.Mirrors(no, no)
			a.Wants(1*s, no, 5*m)
			a.CutOff(5*m+1*s-40*ms, 30*s)
			b.Wants(5*m+20*s, 50*m, 5*m)
		},
	}, {
		Name: "shutdown-forgets", Title: "A shutdown forgets a release", Hole: "G3-10", Length: 45 * m,
		Story: "A's release fails; the server can be reached again, and A shuts down in order before its next ping.",
		Wrong: "3.2 forgets its queue at shutdown, and the older ones know no orderly one: the lock stays held for a takeover time.",
		Rule:  "Ours tries once more when it is closed, and names what stays held.",
		Where: "distlock/manager.go Close",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 5*m)
			a.CutOff(5*m+1*s-40*ms, 12*s)
			a.ShutsDown(5*m + 20*s)
			b.Wants(5*m+30*s, 35*m, 5*m)
		},
	}, {
		Name: "operator-frees", Title: "An operator frees the lock by hand", Hole: "G3-3", Length: 45 * m,
		Story: "A stands still for 18 minutes; after 14 an operator sets state 0; A wakes and asks before each write; B comes later.",
		Wrong: "Before 2.4.2 there is nothing to ask, and the check of 3.2 looks for the session and not for the state, so A works on beside B.",
		Rule:  "From 2.4.2 to 3.0 the check looks at the state; in ours A has stopped to trust its lock long before.",
		Where: "distlock/guard.go Verify",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 30*m).Asks()
			a.Pauses(2*m, 18*m)
			st.Operator(16*m, bson.D{{Key: "state", Value: int32(0)}})
			b.Wants(21*m+30*s, 10*m, 10*m)
		},
	}, {
		Name: "restored-backup", Title: "A backup brings an old lock back", Hole: "H12", Length: 60 * m,
		Story: "A backup is restored: a lock document that says held, by a process that is long gone and has no ping.",
		Wrong: "1.8 finds no ping and waits for a person, for ever.",
		Rule:  "Since 2.0 no ping is a ping that does not change, so the lock is taken after 15 minutes.",
		Where: "takeover/decide.go Decide",
		Play: func(st *Stage) {
			b := st.Process("B")
			st.Operator(10*s, bson.D{
				{Key: "state", Value: st.Held()}, {Key: "who", Value: "gone:27017:1262304000:1:conn1"},
				{Key: "process", Value: "gone:27017:1262304000:1"}, {Key: "when", Value: date(noon.Add(-48 * h))},
				{Key: "why", Value: "of the backup"}, {Key: "ts", Value: bson.ObjectID{1}},
			})
			b.Wants(1*m, 55*m, 5*m)
		},
	}}
}

// outcomes are the cases of commands of which nobody knows what became of them.
func outcomes() []Case {
	return []Case{{
		Name: "grab-reply-lost", Title: "The reply of a grab is lost", Hole: "H11", Length: 60 * m,
		Story: "A's command for the lock is carried out, and the reply never comes; A lives on, and pings.",
		Wrong: "1.8 throws an exception and nobody unlocks: the lock is held by a process that does not know it.",
		Rule:  "2.0 forces what is only being prepared, after 15 minutes; 3.2 undoes and tries again; ours asks what became of it.",
		Where: "distlock/acquire.go unresolved",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 5*m)
			a.Strikes(replyLost, Grab, 1, no, no)
			b.Wants(1*m, 55*m, 5*m)
		},
	}, {
		Name: "grab-read-fails", Title: "The read after a grab fails", Hole: "H11", Length: 60 * m,
		Story: "A's command for the lock is carried out and answered; the read after it fails; A lives on, and pings.",
		Wrong: "1.8 reads before it looks at the answer (r1.8.5 client/distlock.cpp:266), and the exception leaves the lock held for ever.",
		Rule:  "So does 2.0 (r2.0.9:722), but what is only being prepared is forced after 15 minutes; 3.2 and ours read nothing.",
		Where: "distlock/acquire.go unresolved",
		Not:   not("its grab is answered with the document", map[string]string{"3.2": catalog32 + "199", Ours: ""}),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 5*m)
			a.Strikes(refused, Reread, 1, no, no)
			b.Wants(1*m, 55*m, 5*m)
		},
	}, {
		Name: "finalize-reply-lost", Title: "The reply of the second step is lost", Hole: "H11", Length: 60 * m,
		Story: "In 2.0 a grab has two steps; the reply of the second never comes.",
		Wrong: "The exception, or one of the read after it (r2.0.9:844), leaves the lock held; 2.0 queues an unlock that the next ping carries out.",
		Rule:  "The other generations have no second step; theirs is grab-reply-lost.",
		Where: "distlock/acquire.go unresolved",
		Not: not("its grab is one step", map[string]string{"1.6": file16 + "165", "1.8": file18 + "263", "3.2": catalog32 + "196",
			Ours: ""}),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 5*m)
			a.Strikes(replyLost, Finalize, 1, no, no)
			b.Wants(10*s, 55*m, 5*m)
		},
	}, {
		Name: "late-grab", Title: "A grab is carried out when it was given up", Hole: "G3-1", Length: 45 * m,
		Story: "A's command for the lock gets no answer; ten minutes later, when A is long done, it is carried out.",
		Wrong: "The lock is held by a session that nobody remembers, of a process that lives and pings: 1.8 and 3.2 never free it.",
		Rule:  "2.0 forces it because it never gets past its first step; ours reads what stands in its name and releases what it does not know.",
		Where: "pinger/reaper.go Reap",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 5*m)
			a.Strikes(late, Grab, 1, no, 10*m)
			b.Wants(12*m, 25*m, 5*m)
		},
	}}
}

// limits are the cases of what no lock can do, and of what a lock does not do alone.
func limits() []Case {
	return []Case{{
		Name: "dead-holder", Title: "The holder dies", Hole: "H8", Length: 45 * m,
		Story: "A dies while it holds the lock; B waits.",
		Wrong: "Nothing: this is what a takeover is for, and 15 minutes are its price, 16 in 1.8, which cuts the minutes off.",
		Rule:  "Ours waits as long, and takes it at once when three witnesses agree that the ping is that old.",
		Where: "takeover/decide.go Decide",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 1*h)
			a.Dies(5 * m)
			b.Wants(2*m, 35*m, 5*m)
		},
	}, {
		Name: "cut-off", Title: "The holder is cut off and works on", Hole: "H8", Length: 33 * m,
		Story: "A is cut off from the config server for 25 minutes, but not from what it works on.",
		Wrong: "No generation tells the holder: it works on beside B, and its writes go in after B's.",
		Rule:  "In ours a holder stops 3 minutes and 45 seconds before anybody may take its lock, by its own clock.",
		Where: "pinger/term.go judge",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 24*m)
			a.CutOff(2*m+10*s, 25*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "pause", Title: "The holder comes back from a pause and writes on", Hole: "H8", Length: 45 * m,
		Story: "A stands still for 20 minutes and goes on as if nothing had happened.",
		Wrong: "A's writes go in among those of B: it learns of its loss when it asks at the end, and in 1.8 never.",
		Rule:  "In ours the guard asks the clock first, so the first thing A sees is that the lock is lost.",
		Where: "distlock/guard.go Err",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 30*m)
			a.Pauses(2*m+10*s, 20*m)
			b.Wants(3*m, 35*m, 15*m)
		},
	}, {
		Name: "write-on-its-way", Title: "A write is on its way for 20 minutes", Hole: "H8", Length: 45 * m,
		Story: "A has asked, all is well, it writes and dies; its write is held up on its way.",
		Wrong: "The write arrives when B has worked for a while, and goes in: no question to a lock could have stopped it.",
		Rule:  "Only the resource can: ours gives a fence along, and B's larger one was there first.",
		Where: "distlock/fencing.go Fenced",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 30*m)
			a.Strikes(delayed, Write, 3, no, 20*m)
			a.Dies(2*m + 30*s)
			b.Wants(3*m, 35*m, 15*m)
		},
	}, {
		Name: "starved", Title: "A waiter among pollers", Hole: "G3-13", Length: 30 * m,
		Story: "A and B take the lock for a minute, again and again; C waits for it from the third minute on.",
		Wrong: "Whoever asks in the right instant is first: A asks right after its own release, and C and B only see a lock that is held.",
		Rule:  "In ours waiters stand in a line, and a release grants the lock to the first of it.",
		Where: "catalog/transition/enter_leave.go leave",
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			a.Wants(1*s, 25*m, 1*m).Times(20)
			b.Wants(5*s, 25*m, 1*m).Times(20)
			c.Wants(3*m, 25*m, 1*m)
		},
	}}
}
