package study

// takeovers are the cases of a lock that changes hands by force.
func takeovers() []Case {
	return []Case{{
		Name: "two-force", Title: "Two contenders force at once", Hole: "H1", Length: 45 * m,
		Story: "A is dead; B and C decide in the same instant to take its lock, and C's command is slow.",
		Wrong: "1.8 forces by _id alone, so C frees the lock that B has got meanwhile, and takes it, too.",
		Rule:  "Since 2.0 a force names the session that was watched; ours condemns the process and names its last ping besides.",
		Where: "takeover/decide.go Decide",
		Play: func(st *Stage) {
			a, b, c := st.Process("A"), st.Process("B"), st.Process("C")
			a.Wants(1*s, no, 1*h)
			a.Dies(3 * m)
			b.Wants(5*m, 35*m, 15*m)
			c.Wants(5*m, 35*m, 15*m)
			c.Strikes(delayed, Take, 1, no, 2*s)
		},
	}, {
		Name: "resumes-in-time", Title: "The holder pings again between decision and command", Hole: "G3-4", Length: 45 * m,
		Story: "A stands still for a little more than the takeover time, and runs again just when B has decided.",
		Wrong: "The force of 1.8 names the lock, that of 2.0 to 3.2 the session and not the ping, so it takes the lock of a holder that lives.",
		Rule:  "Ours condemns the ping that it watched, which matches nothing any more; and A has stopped to trust its lock.",
		Where: "internal/contend/evict.go Condemn",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 35*m)
			a.Pauses(2*m+10*s, st.w.generation.decides())
			b.Wants(70*s, 35*m, 10*m)
			b.Strikes(delayed, Take, 1, no, 4*s)
		},
	}, {
		Name: "outage-20m", Title: "The servers do not write for 20 minutes", Hole: "H14", Length: 60 * m,
		Story: "For 20 minutes too few config servers are there, and nobody can write; then all is well, and B is the first to come.",
		Wrong: "Nobody could ping, and mirrored servers are read with one of them away: by 1.8 everybody is dead when it is back.",
		Rule:  "A replica set has elected a primary by then, and 3.2 watches anew; in ours the holder stops besides, since it knows that its pings failed.",
		Where: "pinger/term.go judge",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 50*m)
			st.Outage(3*m+5*s, 20*m)
			b.Wants(70*s, 50*m, 10*m)
		},
	}, {
		Name: "outage-15m", Title: "The servers do not write for just 15 minutes", Hole: "G2-2", Length: 60 * m,
		Story: "The same for 15 minutes and a little, so that the servers are back before the contender's time is up.",
		Wrong: "2.0 to 3.0 come to their decision after the outage and before the holder's next ping.",
		Rule:  "3.2 watches anew under the new primary; in ours the holder stops after 11 minutes and 15 seconds without an acknowledged ping.",
		Where: "pinger/term.go judge",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 50*m)
			st.Outage(3*m+5*s, 14*m+55*s+700*ms)
			b.Wants(70*s, 50*m, 10*m)
		},
	}, {
		Name: "finalize-late", Title: "A holder stands still between its two steps", Hole: "G2-1", Length: 60 * m,
		Story: "A stands still for 20 minutes right after its first command for the lock was carried out.",
		Wrong: "In 2.0 B forces the lock that is being prepared, and then A writes its second step over B's document.",
		Rule:  "3.2 has one step, but A believes an answer that is 20 minutes old; ours sees by the clock that it came too late.",
		Where: "distlock/acquire.go newGuard",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(10*s, no, 20*m)
			a.Strikes(pauseAfter, Grab, 1, no, 20*m)
			b.Wants(1*m, 45*m, 30*m)
		},
	}, {
		Name: "mixed-versions", Title: "A holder of 1.8 among later contenders", Hole: "G2-9", Length: 33 * m,
		Story: "A cluster is being upgraded: A still runs 1.8 and holds the lock, B runs a later lock already.",
		Wrong: "State 1 means held to A and being prepared to B of 2.0, which ignores A's pings and takes the lock after 15 minutes.",
		Rule:  "Ours reads every state above 0 as held, and a ping that changes as one, whoever wrote it.",
		Where: "catalog/documents.go ParseLock",
		Not: merged(not("nothing is mixed: its state of a held lock is 1, too", map[string]string{"1.6": file16 + "161", "1.8": file18 + "257"}),
			not("its config servers are a replica set, and 1.8 needs mirrored ones", map[string]string{"3.2": catalog32 + "64"})),
		Play: func(st *Stage) {
			a, b := st.Process("A").As(old), st.Process("B")
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "passers-by", Title: "Each contender looks only once", Hole: "G3-6", Length: 60 * m,
		Story: "A dies; every five minutes another process comes, wants the lock for two minutes, and goes.",
		Wrong: "2.0 and 3.2 keep what they saw inside the process, so nobody ever has watched for 15 minutes.",
		Rule:  "1.8 decided at the first look; ours takes it after three intervals of watching when three witnesses call the ping old.",
		Where: "takeover/decide.go Decide",
		Play: func(st *Stage) {
			a := st.Process("A")
			a.Wants(1*s, no, 1*h)
			a.Dies(3 * m)
			for i, name := range []string{"B", "C", "D", "E", "F", "G"} {
				at := 25*m + 5*m*n(i)
				st.Process(name).From(at-1*m).Wants(at, 2*m, 1*m)
			}
		},
	}, {
		Name: "lock-of-a-command", Title: "A command makes a lock object of its own", Hole: "SERVER-3959", Length: 60 * m,
		Story: "A dies; B's commands, one every four minutes, try once each, and where the lock can wait they wait.",
		Wrong: "2.0.0 keeps what it saw inside the lock object, so no command ever has watched for 15 minutes (play 2.0.0); 2.0.1 in the process.",
		Rule:  "1.8 decided at the first look; ours watches per Manager, and goes on after a call was refused.",
		Where: "internal/contend/vigil.go Keep",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B").Tries(4*m)
			a.Wants(1*s, no, 1*h)
			a.Dies(3 * m)
			b.Wants(5*m, 45*m, 5*m)
		},
	}, {
		Name: "two-of-one-process", Title: "Two contenders of one process", Hole: "G2-8", Length: 45 * m,
		Story: "One thread of B finds no lock, and its insert hangs for ten minutes; A takes the lock and dies; another thread of B watches.",
		Wrong: "What 2.0 has watched is the process's: the first thread forgets it when it goes on to grab, and the second begins anew.",
		Rule:  "1.8 remembers nothing; the grab of 3.2 and of ours is one command, and forgets nothing.",
		Where: "internal/contend/judge.go look",
		Not:   not("it inserts nothing: its grab makes the document", map[string]string{"3.2": catalog32 + "196", Ours: ""}),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			st.Mirrors(no, no) // an insert waits for its answer only there: r2.0.9 client/syncclusterconnection.cpp:267
			a.Wants(2*s, no, 1*h)
			a.Dies(3 * m)
			b.Strikes(delayed, Insert, 1, no, 10*m)
			b.Wants(1*s, no, 1*m)
			b.Wants(5*m, 35*m, 5*m)
		},
	}, {
		Name: "elections", Title: "An election every ten minutes", Hole: "G3-5", Length: 75 * m,
		Story: "A dies; another server becomes primary at 10, 20, 30 and 40 minutes.",
		Wrong: "Each election starts the watching of 3.2 anew, so B waits until the elections are over.",
		Rule:  "Ours watches anew, too, but needs three ping intervals only when three witnesses agree.",
		Where: "takeover/change.go moved",
		Not:   noElections(),
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 1*h)
			a.Dies(5 * m)
			b.Wants(6*m, 65*m, 5*m)
			for i := range 4 {
				st.Election(10*m*n(i+1), no)
			}
		},
	}, {
		Name: "step-up", Title: "A config server becomes primary", Hole: "G3-7", Length: 33 * m,
		Story: "A works under the lock as a member of the config servers; C becomes primary in its place, and wants the lock a second later.",
		Wrong: "3.4 to 4.4 free all locks of config servers at a step-up, also those under which A still works; B gets it before C (G3-8, SERVER-26116).",
		Rule:  "In ours nobody frees another process's lock because it starts.",
		Where: "distlock/manager.go New",
		Not: merged(noRoles(), not("its balancer's lock is taken by a mongos, and by no config server", map[string]string{
			"1.6": "r1.6.5 s/balance.cpp:251", "1.8": "r1.8.5 s/balance.cpp:298", "2.0": "r2.0.9 s/balance.cpp:297",
			"2.6": "r2.6.12 src/mongo/s/balance.cpp:495"})),
		Play: func(st *Stage) {
			a, b := st.Process("A").As(configServer), st.Process("B")
			st.Process("C").As(configServer).From(10*m).Wants(10*m+1*s, no, 5*m)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "shard-steps-up", Title: "Another node of a shard becomes primary", Hole: "G3-9", Length: 33 * m,
		Story: "A is the primary of a shard of 5.0 and works under the lock; C becomes primary of the shard, and wants the lock.",
		Wrong: "5.0 frees all locks of a shard when one of its nodes becomes primary, so C gets the lock, and nothing tells A, which works on.",
		Rule:  "In ours a node is a process of its own, whose lock is taken when its pings have stopped, and which stops before that.",
		Where: "pinger/term.go judge",
		Not:   noRoles(),
		Play: func(st *Stage) {
			a := st.Process("A").As(shard)
			c := st.Process("C").SameHost(a).As(shard).From(10 * m)
			a.Wants(1*s, no, 24*m)
			c.Wants(11*m, 5*m, 6*m)
		},
	}, {
		Name: "shared-session", Title: "All shards lock under one session", Hole: "G3-11", Length: 33 * m,
		Story: "A and B are shards of 5.0; A holds the lock, and B wants it.",
		Wrong: "In 5.0 the session is a constant of the role, so B takes A's lock for its own and overtakes at once.",
		Rule:  "In ours every attempt has a session of its own.",
		Where: "distlock/acquire.go begin",
		Not:   noRoles(),
		Play: func(st *Stage) {
			a, b := st.Process("A").As(shard), st.Process("B").As(shard)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}}
}
