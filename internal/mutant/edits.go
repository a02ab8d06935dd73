package mutant

// An Edit is a mistake as a change of the text of one file: what a hand could have written there. A
// test lays it over the file, with go test -overlay, and demands that a schedule of package explore
// fails. So the code itself knows nothing of it.
type Edit struct {
	Name string
	File string // from the root of the module
	Old  string // stands exactly once in the file
	New  string
	// Schedule is the name of the one that must fail, see explore.Named.
	Schedule string
	// Rule is the oracle that must fire.
	Rule string
}

// Edits are the mistakes at the edges of the protocol.
var Edits = []Edit{
	{
		Name: "a late ping counts", File: "catalog/memcatalog/pings.go",
		Old:      `case doc.at("condemned") >= 0 || !below(b.Seq)(doc.get("seq")):`,
		New:      `case doc.at("condemned") >= 0:`,
		Schedule: "a ping applied late", Rule: "I3",
	},
	{
		Name: "what a caller holds is presumed", File: "distlock/waiting.go",
		Old:      `a.grant.Holds = sessions(owned(ctx, w.o))`,
		New:      `a.grant.Holds = sessions(w.m.table.all())`,
		Schedule: "holders who wait for one another and say nothing", Rule: "truth",
	},
	{
		Name: "a semaphore is stuck when one of its holders is", File: "distlock/deadlock.go",
		Old:      `need = max(0, len(ahead)-limit+1)`,
		New:      `need = len(ahead)`,
		Schedule: "a permit that comes back", Rule: "truth",
	},
	{
		Name: "a semaphore is never stuck", File: "distlock/deadlock.go",
		Old:      `need = max(0, len(ahead)-limit+1)`,
		New:      `need = 0`,
		Schedule: "circle of permits", Rule: "I7",
	},
	{
		Name: "who gives up waits for the server", File: "distlock/attempt.go",
		Old:      `func (a *attempt) undo() { a.m.pinger.ReleaseSoon(a.grant.Session) }`,
		New:      `func (a *attempt) undo() { _ = a.m.locks.Release(context.Background(), a.grant.Session) }`,
		Schedule: "context ends in line while the server hangs", Rule: "prompt",
	},
	{
		Name: "the reaper does not look at lines", File: "pinger/chores.go",
		Old:      `if !owns(s.TS) && !guards[s.Session] && !p.queue.has(s.Session) {`,
		New:      `if !owns(s.TS) && !guards[s.Session] && !p.queue.has(s.Session) && !s.Waits {`,
		Schedule: "enter applied after giving up, a long turn", Rule: "I6",
	},
	{
		Name: "a full line is tried and not looked behind", File: "distlock/waiting.go",
		Old:      `if g, err = w.outside(ctx, me, err); !errors.Is(err, errFree) {`,
		New:      `w.last = acquiring(w.name, err); if err = w.sleep(ctx); err != nil {`,
		Schedule: "a line full of the dead", Rule: "I7",
	},
	{
		Name: "another limit is not looked behind", File: "distlock/attempt.go",
		Old: `if buried, err := a.m.buryDead(ctx, s, len(s.suspects)); err != nil {`,
		New: `if limit := s.otherLimit(a.grant.Limit); limit != nil {
			return nil, acquiring(a.grant.Name, limit)
		} else if buried, err := a.m.buryDead(ctx, s, len(s.suspects)); err != nil {`,
		Schedule: "another limit of the dead, asked for", Rule: "I7",
	},
	{
		Name: "what makes waiting hopeless is told to nobody", File: "distlock/attendant.go",
		Old:      `errors.As(err, &denied) || errors.Is(err, ErrMalformed) ||`,
		New:      `errors.As(err, &denied) ||`,
		Schedule: "a lock that is waited for becomes unreadable", Rule: "I7",
	},
	{
		Name: "who is not known to be foreign is ours", File: "takeover/decide.go",
		Old:      `	if now.Foreign() {`,
		New:      `	if now.Foreign() && now.HasPing {`,
		Schedule: "a foreign manager that does not come back", Rule: "I4",
	},
	{
		Name: "a foreign holder is condemned", File: "distlock/watch.go",
		Old:      `if dead.evidence.Foreign() || blind || done`,
		New:      `if blind || done`,
		Schedule: "a foreign manager that does not come back", Rule: "I3",
	},
	{
		Name: "Close gives nothing back when its context has ended", File: "distlock/manager.go",
		Old:      `return m.within(context.WithoutCancel(ctx), m.cfg.CommandTimeout)`,
		New:      `return m.within(ctx, m.cfg.CommandTimeout)`,
		Schedule: "close with an ended context", Rule: "I8",
	},
	{
		Name: "a release after Close knows of no gap", File: "distlock/guard.go",
		Old: `		return fmt.Errorf("distlock: release %s: %w before the guard was released",
			quoted(h.session.Name), ErrClosed)`,
		New:      `		return nil`,
		Schedule: "close during work", Rule: "truth",
	},
	{
		Name: "a transaction waits for the one around it", File: "distlock/fenced.go",
		Old:      `if ctx.Value(transactionOf{g.h}) != nil {`,
		New:      `if false {`,
		Schedule: "a transaction inside of itself", Rule: "truth",
	},
}
