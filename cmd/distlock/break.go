package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
)

// maxBreakWhy leaves room for the word that is stored before the reason.
const maxBreakWhy = maxText - len("broken: ")

// breaker frees a lock by force.
type breaker struct {
	connection
	logging
	name, why string
	fence     int64
	session   string
	yes       bool
}

func (b *breaker) flags(f *flag.FlagSet) {
	b.connection.flags(f)
	b.logging.flags(f)
	f.Int64Var(&b.fence, "fence", 0, "the fence that \"distlock locks\" showed; required")
	f.StringVar(&b.session, "session", "", "the holder's session that was shown; required for a "+
		"foreign holder, which raises no fence")
	f.StringVar(&b.why, "why", "", "the reason, kept in the lock document; required")
	f.BoolVar(&b.yes, "yes", false, "do it; without, only show what is held")
}

func (b *breaker) accept(c call) error {
	var err error
	if b.name, err = lockName(append(c.args, c.after...)); err != nil {
		return err
	}
	switch problem := badText(b.why, maxBreakWhy); {
	case !c.given["fence"]:
		return errors.New("--fence is missing: give the fence that \"distlock locks\" showed")
	case b.fence < 0:
		return fmt.Errorf("--fence is %d, must not be negative", b.fence)
	case b.why == "":
		return errors.New("--why is missing: say why the lock is broken")
	case problem != "":
		return fmt.Errorf("--why %s", problem)
	}
	return b.connection.accept(c)
}

func (b *breaker) run(ctx context.Context, s stdio) error {
	log, closeLog, err := b.logging.open()
	if err != nil {
		return err
	}
	defer closeLog()
	st, err := b.connection.open(0)
	if err != nil {
		return err
	}
	defer st.close()
	server, err := b.hello(ctx, st)
	if err != nil {
		return err
	}
	if err := mongocatalog.Supported(server, b.database); err != nil {
		return err
	}
	look, err := catalog.LookAt(ctx, st, b.name)
	if err != nil {
		return b.explain(err)
	}
	if look.Lock == nil && look.LockErr == nil {
		return st.absent(ctx, b.name)
	}
	target, err := b.breakable(look, s.out)
	if err != nil {
		return err
	}
	if !b.yes {
		with := "--yes"
		if foreignHolder(target) {
			with = "--session " + target.TS.Hex() + " --yes"
		}
		fmt.Fprintf(s.out, "\nNothing was changed. %s\nMake sure that it is dead or stopped; then "+
			"repeat the command with %s.\n", learns(target), with)
		return exit{code: exitFailed}
	}
	what, err := b.free(ctx, st, look, target)
	if err != nil {
		return b.failed(ctx, st, err, s.out)
	}
	log.Warn().Str("lock", catalog.Printable(b.name, 200)).Int64("fence", b.fence).
		Str("process", catalog.Printable(target.Process, 200)).
		Str("why", catalog.Printable(b.why, 200)).Msg("broken by hand")
	fmt.Fprintf(s.out, "\n%s%s\n", what, learns(target))
	return nil
}

// breakable shows the lock and returns the holder that is to be taken out. It refuses what is not
// as the operator saw it.
func (b *breaker) breakable(look catalog.Snapshot, out io.Writer) (standing, error) {
	if look.LockErr != nil {
		return standing{}, fmt.Errorf("%w (%s)", look.LockErr, remedy(look.LockErr))
	}
	l := look.Lock
	describe(out, look)
	if !l.Held {
		return standing{}, errors.New("the lock is free, nothing was changed")
	}
	holders := holdersOf(look)
	for _, h := range holders {
		switch {
		case h.Fence != b.fence || b.session != "" && b.session != h.TS.Hex():
			continue
		case b.session == "" && b.yes && foreignHolder(h):
			return standing{}, fmt.Errorf("a foreign holder has the lock, which raises no fence: it may not "+
				"be the one that you saw; if it is, add --session %s; nothing was changed", h.TS.Hex())
		}
		return h, nil
	}
	has := fmt.Sprintf("the lock has fence %d, not %d", l.Fence, b.fence)
	switch {
	case b.session != "":
		has = fmt.Sprintf("no holder has fence %d and session %s", b.fence, shown(b.session, 30))
	case len(holders) > 1:
		has = fmt.Sprintf("none of the %d holders has fence %d", len(holders), b.fence)
	}
	return standing{}, fmt.Errorf("%s: it is not as you saw it, nothing was changed", has)
}

// foreignHolder reports whether a holder is none of ours as far as its ping tells, see
// [distlock.Manager.Break]. Shared locks and permits are ours: no foreign program has them.
func foreignHolder(s standing) bool {
	return s.Mode == catalog.Exclusive && (s.pulse.Ping == nil || !s.pulse.Ping.HasSeq)
}

// free takes the holder out and says what came of it. A lock that it has to itself, and nobody
// waits for, is freed; else the holder is buried, by which the next in line is granted the lock.
func (b *breaker) free(ctx context.Context, st *store, look catalog.Snapshot, target standing) (
	string, error,
) {
	others := len(look.Lock.Holders()) - 1
	if others == 0 && len(look.Lock.Waiters) == 0 {
		lock, err := st.Break(ctx, look.Lock.Session(), b.fence, b.why)
		if err == nil {
			return fmt.Sprintf("The lock is free now, fence %d. ", lock.Fence), nil
		}
		if !errors.Is(err, catalog.ErrNoMatch) { // else somebody came to wait
			return "", err
		}
	}
	awards, err := st.Evict(ctx, catalog.Holder{
		Session: catalog.Session{Name: b.name, TS: target.TS}, Process: target.Process,
	}, "broken: "+b.why)
	switch {
	case err != nil:
		return "", err
	case len(awards) > 0:
		what := "The lock was granted to whoever was next in line:"
		for _, a := range awards {
			what += fmt.Sprintf("\n  %s, fence %d", shown(a.Process, 200), a.Fence)
		}
		return what + "\n", nil
	case others > 0:
		return "That holder is out of the lock; others hold it still. ", nil
	}
	return "The lock is free now. ", nil
}

// failed explains why a break was not carried out, and shows what is there now.
func (b *breaker) failed(ctx context.Context, st *store, err error, out io.Writer) error {
	switch {
	case errors.Is(err, catalog.ErrNoMatch):
		if look, lookErr := catalog.LookAt(ctx, st, b.name); lookErr == nil && look.Lock != nil {
			fmt.Fprint(out, "\nnow:\n")
			describe(out, look)
		}
		return errors.New("the lock changed in between: it is not as you saw it, nothing was changed")
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return fmt.Errorf("it may or may not be broken now; list the locks again: %w", err)
	}
	return b.explain(err)
}

// describe shows one lock: its holders, and who is next.
func describe(w io.Writer, h catalog.Snapshot) {
	holders := holdersOf(h)
	state := "held"
	switch {
	case !h.Lock.Held:
		state = "free"
	case h.Lock.Mode == catalog.Permit:
		state = "held, " + permits(*h.Lock) + " are taken"
	case len(holders) > 1:
		state = fmt.Sprintf("held by %d", len(holders))
	}
	fmt.Fprintf(w, "lock %s is %s\n", named(h.Lock.Name), state)
	for i, s := range holders {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if !h.Lock.Held {
			fmt.Fprintf(w, "  last by   %s\n", shown(s.Process, 200))
		} else {
			fmt.Fprintf(w, "  by        %s\n", shown(s.Process, 200))
			fmt.Fprintf(w, "  caller    %s\n", shown(s.label(), 300))
			fmt.Fprintf(w, "  mode      %s\n", modeOf(mode(s.Mode), s.Limit))
		}
		fmt.Fprintf(w, "  why       %s\n", shown(s.Why, 300))
		fmt.Fprintf(w, "  since     %s\n", instant(s.Since))
		if h.Lock.Held {
			fmt.Fprintf(w, "  held for  %s\n", age(s.lasts()))
		}
		fmt.Fprintf(w, "  ping age  %s\n", age(s.pingAge()))
		fmt.Fprintf(w, "  fence     %d\n", s.Fence)
		for _, mark := range s.marks() {
			fmt.Fprintf(w, "  mark      %s\n", mark)
		}
	}
	describeLine(w, waitersOf(h))
}

// describeLine shows who would be granted the lock if its holder were out of it.
func describeLine(w io.Writer, line []standing) {
	if len(line) == 0 {
		fmt.Fprintln(w, "nobody waits for it")
		return
	}
	fmt.Fprintf(w, "%d in line for it, the next is\n", len(line))
	next := line[0]
	fmt.Fprintf(w, "  process   %s\n", shown(next.Process, 200))
	fmt.Fprintf(w, "  caller    %s\n", shown(next.label(), 300))
	fmt.Fprintf(w, "  mode      %s\n", modeOf(mode(next.Mode), next.Limit))
	fmt.Fprintf(w, "  why       %s\n", shown(next.Why, 300))
	fmt.Fprintf(w, "  waited    %s\n", age(next.lasts()))
	fmt.Fprintf(w, "  ping age  %s\n", age(next.pingAge()))
	for _, mark := range next.marks() {
		fmt.Fprintf(w, "  mark      %s\n", mark)
	}
}

// learns says when a holder that lives hears of a break.
func learns(holder standing) string {
	within := ""
	if ping := holder.pulse.Ping; ping != nil && ping.Interval > 0 {
		within = fmt.Sprintf(", about every %v", ping.Interval)
	}
	return fmt.Sprintf("A holder that lives learns of it only with its next ping%s, and until then "+
		"works on as if it held the lock.", within)
}
