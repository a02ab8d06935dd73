package mutant

import "mongodlm/internal/explore"

var all = []Mistake{
	{ // 1
		Name: "overtake by _id alone", Store: explore.OvertakeByName,
		Schedule: "two heirs", Rule: "I3",
	},
	{ // 2
		Name: "release by _id alone", Store: explore.ReleaseByName,
		Schedule: "holder paused past the takeover time", Rule: "I3",
	},
	{ // 3
		Name: "deadline from the reply", File: "pinger/beat.go",
		Old: "p.renewed(sent)\n", New: "p.renewed(p.clock.Now())\n",
		Schedule: "last ping's reply slow", Rule: "I4",
	},
	{ // 4
		Name: "stopwatch from before the first look", File: "takeover/elapsed.go",
		Old: "minus(now.Sent, replied(first))", New: "minus(now.Sent, first.Sent)",
		Schedule: "first look slow", Rule: "rule", Harm: "I4",
	},
	{ // 5
		Name: "stopwatch read after the last look", File: "takeover/elapsed.go",
		Old: "minus(now.Sent, replied(first))", New: "minus(replied(now), replied(first))",
		Schedule: "last look slow", Rule: "rule",
	},
	{ // 6
		Name: "guard revived by a late reply", File: "distlock/guard.go",
		Old:      "	if ended := h.ended.Load(); ended != nil {\n		return *ended\n",
		New:      "	if h.m.pinger.Term() != nil {\n		return nil\n",
		Schedule: "ping answered after the deadline", Rule: "lost",
	},
	{ // 7
		Name: "trusted for takeover + ping", File: "pinger/pinger.go",
		Old: "hold: cfg.Takeover - cfg.Margin", New: "hold: cfg.Takeover + cfg.Interval",
		Schedule: "holder cut off past the takeover time", Rule: "I4",
	},
	{ // 8
		Name: "own takeover time only", File: "takeover/decide.go",
		Old:      "	t := max(p.Takeover, now.Recorded)\n	if now.HasPing {",
		New:      "	t := p.Takeover\n	if false {",
		Schedule: "holder with a longer takeover time", Rule: "rule", Harm: "I4",
	},
	{ // 9: as mongos 1.8, at the first look
		Name: "age of the ping by the contender's clock", File: "takeover/decide.go",
		Old:      "if j.watched >= j.takeover {",
		New:      "if j.now.Wall.Sub(j.now.Ping) >= j.takeover {",
		Schedule: "contender's clock ahead", Rule: "rule", Harm: "I4",
	},
	{ // 10
		Name: "no reap", File: "pinger/chores.go",
		Old: "	before := p.cfg.Owner.Guarded(t)\n", New: "	before := p.cfg.Owner.Guarded(t)\n	return nil\n",
		Schedule: "acquire applied after giving up", Rule: "I6",
	},
	{ // 11
		Name: "reaper asks its table before the read", File: "pinger/chores.go",
		Old: "!p.cfg.Owner.Owns(s.TS) && ", New: "",
		Schedule: "acquired during the reaper's read", Rule: "I1",
	},
	{ // 12
		Name: "attempt noted after sending", File: "distlock/attempt.go",
		Old: "	m.table.enter(a.grant.TS)\n", New: "",
		Schedule: "reaper's read during an acquire", Rule: "I2",
	},
	{ // 13
		Name: "upserting ping", Store: explore.UpsertingPing,
		Schedule: "holder paused past the takeover time", Rule: "I3",
	},
	{ // 14
		Name: "seq fork ignored", File: "pinger/beat.go",
		Old:      "case errors.Is(err, catalog.ErrTwin), ",
		New:      "case errors.Is(err, catalog.ErrTwin):\n		return nil\n	case ",
		Schedule: "twins", Rule: "I1",
	},
	{ // 15
		Name: "unknown taken for not held", File: "distlock/attempt.go",
		Old:      `failed = fmt.Errorf("%w: %w", ErrOutcomeUnknown, failed)`,
		New:      `return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, failed)`,
		Schedule: "acquire applied, reply lost", Rule: "I6",
	},
	{ // 16
		Name: "unknown taken for held", File: "distlock/attempt.go",
		Old:      `failed = fmt.Errorf("%w: %w", ErrOutcomeUnknown, failed)`,
		New:      `return a.hand(ctx, catalog.Lock{Fence: unseeded}, evidence)`,
		Schedule: "acquire vanishes", Rule: "I2",
	},
	{ // 17
		Name: "missing state taken for free", Store: explore.LenientDecode,
		Schedule: "lock without a state", Rule: "I3",
	},
	{ // 18
		Name: "write concern 1", Store: explore.WriteConcernOne,
		Schedule: "acquire vanishes", Rule: "I2",
	},
	{ // 19
		Name: "watch goes on after an election", File: "takeover/change.go",
		Old: "before.Primary != now.Primary:", New: "false:",
		Schedule: "election during a watch", Rule: "rule",
	},
	{ // 20
		Name: "watch goes on over another ts", File: "takeover/change.go",
		Old: "before.TS != now.TS:", New: "false:",
		Schedule: "foreign holder acquires again", Rule: "rule", Harm: "I4",
	},
	{ // 21
		Name: "expiry by timer only", File: "pinger/term.go",
		Old: "	t.judge(t.clock.Now())\n	return t.over\n", New: "	return t.over\n",
		Schedule: "holder paused past the takeover time", Rule: "I4",
	},
	{ // 22
		Name: "fence starts anew with the document", File: "distlock/attempt.go",
		Old: "if lock.Fence < unseeded {", New: "if false {",
		Schedule: "lock document deleted", Rule: "I2",
	},
	{ // 23
		Name: "last look from a stale primary, not condemned", File: "distlock/watch.go",
		Old: `	if err := m.samePrimary(ctx, s, dead); err != nil {
		return "", err
	}
	if dead.evidence.Foreign()`,
		New:      `	if true`,
		Schedule: "old primary answers", Rule: "I4",
	},
	{ // 24
		Name: "revalidation by reading", File: "distlock/guard.go",
		Old: "func (h *holding) check(ctx context.Context) error {\n",
		New: `func (h *holding) check(ctx context.Context) error {
	l, err := h.m.locks.Read(ctx, h.session.Name)
	if err == nil && l.Held && l.HeldAs(h.session.TS, h.process) && h.m.pinger.Term() != nil {
		h.term = h.m.pinger.Term()
		h.ended.Store(nil)
	}
`,
		Schedule: "lost guard asks the server", Rule: "lost",
	},
	{ // 25
		Name: "release forgets the line", Store: explore.ReleaseForgetsLine,
		Schedule: "a line", Rule: "I3",
	},
	{ // 26
		Name: "newcomer overtakes the line", Store: explore.NewcomerFirst,
		Schedule: "a line", Rule: "order",
	},
	{ // 27
		Name: "burial by process alone", Store: explore.BuryByProcess,
		Schedule: "two bury the same holder", Rule: "I6",
	},
	{ // 28
		Name: "a waiter that gave up stays in line", Store: explore.QuitterStays,
		Schedule: "waiter gives up", Rule: "I6",
	},
	{ // 29
		Name: "grant used although the term ended", File: "distlock/attempt.go",
		Old: "a.term.Err(); err != nil {", New: "a.term.Err(); false {",
		Schedule: "grant heard first after a pause past the deadline", Rule: "I2",
	},
	{ // 30
		Name: "no question after the stream opened", File: "distlock/following.go",
		Old: "f.set(true)", New: "f.open.Store(true)",
		Schedule: "grant while the stream opens", Rule: "I7",
	},
	{ // 31
		Name: "waiter buried by age alone", File: "distlock/watch.go",
		Old: "	one.Party, one.waits = p, waits\n",
		New: `	one.Party, one.waits = p, waits
			if waits && seen.ServerTime.Sub(p.Since) >= m.cfg.Takeover {
				one.decision.Verdict = takeover.Take
			}
`,
		Schedule: "a long turn before a line", Rule: "rule", Harm: "I4",
	},
	{ // 32
		Name: "a late ping counts as one more", Store: explore.LatePingCounts,
		Schedule: "two pings applied late", Rule: "lost",
	},
	{ // 33
		Name: "foreign holder taken for one of ours", File: "takeover/evidence.go",
		Old: `case e.Process == "" || e.Recorded <= 0:`, New: `case e.Process == "":`,
		Schedule: "foreign manager over the fields of ours", Rule: "I3",
	},
	{ // 34
		Name: "a late ping counts", File: "catalog/memcatalog/pings.go",
		Old: ` || !below(b.Seq)(doc.get("seq")):`, New: `:`,
		Schedule: "a ping applied late", Rule: "I3",
	},
	{ // 35
		Name: "what a caller holds is presumed", File: "distlock/waiting.go",
		Old: `sessions(owned(ctx, w.o))`, New: `sessions(w.m.table.all())`,
		Schedule: "holders who wait for one another and say nothing", Rule: "truth",
	},
	{ // 36
		Name: "a semaphore is stuck when one of its holders is", File: "distlock/deadlock.go",
		Old: `max(0, len(ahead)-limit+1)`, New: `len(ahead)`,
		Schedule: "a permit that comes back", Rule: "truth",
	},
	{ // 37
		Name: "a semaphore is never stuck", File: "distlock/deadlock.go",
		Old: `max(0, len(ahead)-limit+1)`, New: `0`,
		Schedule: "circle of permits", Rule: "I7",
	},
	{ // 38
		Name: "who gives up waits for the server", File: "distlock/attempt.go",
		Old:      `a.m.pinger.ReleaseSoon(a.grant.Session)`,
		New:      `_ = a.m.locks.Release(context.Background(), a.grant.Session)`,
		Schedule: "context ends in line while the server hangs", Rule: "prompt",
	},
	{ // 39
		Name: "the reaper does not look at lines", File: "pinger/chores.go",
		Old:      `!p.queue.has(s.Session) {`,
		New:      `!p.queue.has(s.Session) && !s.Waits {`,
		Schedule: "enter applied after giving up, a long turn", Rule: "I6",
	},
	{ // 40
		Name: "a full line is tried and not looked behind", File: "distlock/waiting.go",
		Old:      `if g, err = w.outside(ctx, me, err); !errors.Is(err, errFree) {`,
		New:      `w.last = acquiring(w.name, err); if err = w.sleep(ctx); err != nil {`,
		Schedule: "a line full of the dead", Rule: "I7",
	},
	{ // 41
		Name: "another limit is not looked behind", File: "distlock/attempt.go",
		Old: `if buried, err := a.m.buryDead(ctx, s, len(s.suspects)); err != nil {`,
		New: `if limit := s.otherLimit(a.grant.Limit); limit != nil {
			return nil, acquiring(a.grant.Name, limit)
		} else if buried, err := a.m.buryDead(ctx, s, len(s.suspects)); err != nil {`,
		Schedule: "another limit of the dead, asked for", Rule: "I7",
	},
	{ // 42
		Name: "what makes waiting hopeless is told to nobody", File: "distlock/attendant.go",
		Old: ` || errors.Is(err, ErrMalformed) ||`, New: ` ||`,
		Schedule: "a lock that is waited for becomes unreadable", Rule: "I7",
	},
	{ // 43
		Name: "who is not known to be foreign is ours", File: "takeover/decide.go",
		Old: `if now.Foreign() {`, New: `if now.Foreign() && now.HasPing {`,
		Schedule: "a foreign manager that does not come back", Rule: "rule", Harm: "I4",
	},
	{ // 44
		Name: "a foreign holder is condemned", File: "distlock/watch.go",
		Old: `dead.evidence.Foreign() || done`, New: `done`,
		Schedule: "a foreign manager that does not come back", Rule: "I3",
	},
	{ // 45
		Name: "Close gives nothing back when its context has ended", File: "distlock/manager.go",
		Old: `m.within(context.WithoutCancel(ctx), `, New: `m.within(ctx, `,
		Schedule: "close with an ended context", Rule: "I8",
	},
	{ // 46
		Name: "a release after Close knows of no gap", File: "distlock/guard.go",
		Old: `		return fmt.Errorf("distlock: release %s: %w before the guard was released",
			quoted(h.session.Name), ErrClosed)`,
		New:      `		return nil`,
		Schedule: "close during work", Rule: "truth",
	},
	{ // 47
		Name: "a transaction waits for the one around it", File: "distlock/fenced.go",
		Old: `ctx.Value(transactionOf{g.h}) != nil`, New: `false`,
		Schedule: "a transaction inside of itself", Rule: "truth",
	},
}
