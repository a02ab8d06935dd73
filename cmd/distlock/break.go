package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
)

// maxBreakWhy leaves room for the word that is stored before the reason.
const maxBreakWhy = distlock.MaxWhyBytes - len("broken: ")

// breaker frees a lock by force.
type breaker struct {
	connection
	logging
	name, why string
	fence     int64
	yes       bool
}

func (b *breaker) flags(f *flag.FlagSet) {
	b.connection.flags(f)
	b.logging.flags(f)
	f.Int64Var(&b.fence, "fence", 0, "the fence that \"distlock locks\" showed; required")
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
	return b.connection.accept()
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
	look, err := st.Look(ctx, b.name)
	if err != nil {
		return b.explain(err)
	}
	if err := b.breakable(look, s.out); err != nil {
		return err
	}
	if !b.yes {
		fmt.Fprintf(s.out, "\nNothing was changed. %s\nMake sure that it is dead or stopped; then "+
			"repeat the command with --yes.\n", learns(look))
		return exit{code: exitFailed}
	}
	lock, err := st.Break(ctx, b.name, b.fence, b.why)
	if err != nil {
		return b.failed(ctx, st, err, s.out)
	}
	log.Warn().Str("lock", catalog.Printable(b.name, 200)).Int64("fence", lock.Fence).
		Str("process", catalog.Printable(lock.Process, 200)).
		Str("why", catalog.Printable(b.why, 200)).Msg("broken by hand")
	fmt.Fprintf(s.out, "\nThe lock is free now, fence %d. %s\n", lock.Fence, learns(look))
	return nil
}

// breakable shows the lock and refuses what is not as the operator saw it.
func (b *breaker) breakable(look catalog.Look, out io.Writer) error {
	switch l := look.Lock; {
	case look.LockErr != nil:
		return fmt.Errorf("%w (%s)", look.LockErr, remedy(look.LockErr))
	case l == nil:
		return fmt.Errorf("there is no lock %q", shown(b.name, 200))
	default:
		describe(out, look)
		if !l.Held {
			return errors.New("the lock is free, nothing was changed")
		}
		if l.Fence != b.fence {
			return fmt.Errorf("the lock has fence %d, not %d: it is not as you saw it, nothing was "+
				"changed", l.Fence, b.fence)
		}
	}
	return nil
}

// failed explains why a break was not carried out, and shows what is there now.
func (b *breaker) failed(ctx context.Context, st *store, err error, out io.Writer) error {
	switch {
	case errors.Is(err, catalog.ErrNoMatch):
		if look, lookErr := st.Look(ctx, b.name); lookErr == nil && look.Lock != nil {
			fmt.Fprint(out, "\nnow:\n")
			describe(out, look)
		}
		return errors.New("the lock changed in between: it is not as you saw it, nothing was changed")
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return fmt.Errorf("it may or may not be broken now; list the locks again: %w", err)
	}
	return b.explain(err)
}

// describe shows one lock.
func describe(w io.Writer, look catalog.Look) {
	l := look.Lock
	if !l.Held {
		fmt.Fprintf(w, "lock %q is free\n", shown(l.Name, 200))
		fmt.Fprintf(w, "  last by   %s\n", shown(l.Process, 200))
	} else {
		fmt.Fprintf(w, "lock %q is held\n", shown(l.Name, 200))
		fmt.Fprintf(w, "  by        %s\n", shown(l.Process, 200))
		fmt.Fprintf(w, "  who       %s\n", shown(l.Who, 300))
	}
	h := catalog.Holding{
		Lock: *l, Ping: look.Ping, PingErr: look.PingErr, ServerTime: look.ServerTime,
	}
	fmt.Fprintf(w, "  why       %s\n", shown(l.Why, 300))
	fmt.Fprintf(w, "  since     %s\n", instant(l.When))
	fmt.Fprintf(w, "  ping age  %s\n", age(pingAge(h)))
	fmt.Fprintf(w, "  fence     %d\n", l.Fence)
	for _, mark := range marks(h) {
		fmt.Fprintf(w, "  mark      %s\n", mark)
	}
}

// learns says when a holder that lives hears of a break.
func learns(look catalog.Look) string {
	within := ""
	if look.Ping != nil && look.Ping.Interval > 0 {
		within = fmt.Sprintf(", about every %v", look.Ping.Interval)
	}
	return fmt.Sprintf("A holder that lives learns of it only with its next ping%s, and until then "+
		"works on as if it held the lock.", within)
}
