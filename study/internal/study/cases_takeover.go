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
		Story: "A stands still for a little more than 15 minutes and runs again just when B has decided.",
		Wrong: "The force of 2.0 and 3.2 names the session and not the ping, so it takes the lock of a holder that lives.",
		Rule:  "Ours condemns the ping that it watched, which matches nothing any more; and A has stopped to trust its lock.",
		Where: "internal/contend/evict.go Condemn",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 35*m)
			a.Pauses(2*m+10*s, 15*m)
			b.Wants(70*s, 35*m, 10*m)
			b.Strikes(delayed, Take, 1, no, 20*s)
		},
	}, {
		Name: "outage-20m", Title: "The servers do not write for 20 minutes", Hole: "H14", Length: 60 * m,
		Story: "For 20 minutes every write fails and reads work; then all is well, and B is the first to come.",
		Wrong: "Nobody could ping, so by 1.8 everybody is dead when the servers are back; 3.2 has watched the same.",
		Rule:  "In ours the holder stops before anybody may take its lock, since it knows that its pings failed.",
		Where: "pinger/term.go judge",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 50*m)
			st.ReadOnly(3*m+5*s, 20*m)
			b.Wants(70*s, 50*m, 10*m)
		},
	}, {
		Name: "outage-15m", Title: "The servers do not write for just 15 minutes", Hole: "G2-2", Length: 60 * m,
		Story: "The same for 15 minutes and a little, so that the servers are back before the contender's time is up.",
		Wrong: "2.0 and 3.2 come to their decision after the outage and before the holder's next ping.",
		Rule:  "In ours the holder stops after 11 minutes and 15 seconds without an acknowledged ping.",
		Where: "pinger/term.go judge",
		Play: func(st *Stage) {
			a, b := st.Process("A"), st.Process("B")
			a.Wants(1*s, no, 50*m)
			st.ReadOnly(3*m+5*s, 14*m+55*s+700*ms)
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
		Name: "mixed-versions", Title: "A holder of 1.8 among contenders of 2.0", Hole: "G2-9", Length: 33 * m,
		Story: "A cluster is being upgraded: A still runs 1.8 and holds the lock, B runs 2.0 already.",
		Wrong: "State 1 means held to A and being prepared to B, which ignores A's pings and takes the lock after 15 minutes.",
		Rule:  "3.2 writes state 2 alone; ours reads every state above 0 as held.",
		Where: "catalog/documents.go ParseLock",
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
		Name: "elections", Title: "An election every ten minutes", Hole: "G3-5", Length: 75 * m,
		Story: "A dies; another server becomes primary at 10, 20, 30 and 40 minutes.",
		Wrong: "Each election starts the watching of 3.2 anew, so B waits until the elections are over.",
		Rule:  "2.0 does not know elections; ours watches anew, too, but needs three ping intervals only when three witnesses agree.",
		Where: "takeover/change.go moved",
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
		Story: "A works under the lock as a member of the config servers; C becomes primary in its place.",
		Wrong: "3.4 to 4.4 free all locks of config servers at a step-up, also those under which A still works.",
		Rule:  "In ours nobody frees another process's lock because it starts.",
		Where: "distlock/manager.go New",
		Play: func(st *Stage) {
			a, b := st.Process("A").As(configServer), st.Process("B")
			st.Process("C").As(configServer).From(10 * m)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}, {
		Name: "shared-session", Title: "All shards lock under one session", Hole: "G3-11", Length: 33 * m,
		Story: "A and B are shards of 5.0; A holds the lock, and B wants it.",
		Wrong: "In 5.0 the session is a constant of the role, so B takes A's lock for its own and overtakes at once.",
		Rule:  "In ours every attempt has a session of its own.",
		Where: "distlock/acquire.go begin",
		Play: func(st *Stage) {
			a, b := st.Process("A").As(shard), st.Process("B").As(shard)
			a.Wants(1*s, no, 24*m)
			b.Wants(2*m, 24*m, 6*m)
		},
	}}
}
