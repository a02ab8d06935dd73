package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/election"
)

// maxBreakWhy is the maximum length of a reason in bytes. The stored reason begins with "broken: ".
const maxBreakWhy = maxText - len("broken: ")

type breaker struct {
	connection
	logging
	name, why string
	fence     int64
	session   string
	yes       bool
}

func (b *breaker) flags(f *pflag.FlagSet) {
	b.connection.flags(f)
	b.logging.flags(f)
	f.Int64Var(&b.fence, "fence", 0, "the fence that \"distlock locks\" showed; required")
	f.StringVar(&b.session, "session", "", "the holder's session, as shown; required for a "+
		"foreign holder, which does not raise the fence")
	f.StringVar(&b.why, "why", "", "the reason, kept in the lock document; required")
	f.BoolVar(&b.yes, "yes", false, "break the lock; without --yes, only show its holders")
}

func (b *breaker) accept(c call) error {
	var err error
	if b.name, err = lockName(c.Args()); err != nil {
		return err
	}
	switch problem := catalog.BadText(b.why, maxBreakWhy); {
	case !c.Changed("fence"):
		return errors.New("--fence is missing: give the fence that \"distlock locks\" showed")
	case b.fence < 0:
		return fmt.Errorf("--fence is %d, must not be negative", b.fence)
	case b.why == "":
		return errors.New("--why is missing: give the reason for the break")
	case problem != "":
		return fmt.Errorf("--why %s", problem)
	}
	return b.connection.accept(c)
}

func (b *breaker) run(ctx context.Context, s stdio) error {
	st, err := b.connection.open(ctx, 0, b.logging)
	if err != nil {
		return err
	}
	defer st.close()
	holders, waiters, err := st.Holder(ctx, b.name)
	var bad *distlock.MalformedError
	switch {
	case errors.As(err, &bad):
		return fmt.Errorf("%w (%s)", bad, remedy(bad))
	case err != nil:
		return b.explain(err)
	case holders == nil:
		return st.missingLock(ctx, b.name)
	}
	describe(s.out, holders, waiters)
	target, err := b.breakable(holders)
	if err != nil {
		return err
	}
	if !b.yes {
		with := "--yes"
		if target.BySession {
			with = "--session " + target.Session.Hex() + " --yes"
		}
		fmt.Fprintf(s.out, "\nNothing was changed. %s\nMake sure that it is dead or stopped; then "+
			"repeat the command with %s.\n", noticeText(target), with)
		return exit{code: exitFailed}
	}
	now, err := st.Break(ctx, b.name, b.fence, b.why, target.Session)
	if err != nil {
		return b.explainFailure(err)
	}
	fmt.Fprintf(s.out, "\n%s\n", words.AfterBreak(now))
	for _, n := range now {
		if n.Held {
			fmt.Fprintf(s.out, "  %s, fence %d\n", shown(n.Process, 200), n.Fence)
		}
	}
	fmt.Fprintln(s.out, noticeText(target))
	return nil
}

// breakable returns the holder that matches the flags --fence and --session. If no holder matches,
// it returns an error. A foreign holder does not raise the fence, so its fence does not identify
// it. With --yes, breakable therefore requires --session for a foreign holder.
func (b *breaker) breakable(holders []distlock.LockInfo) (distlock.LockInfo, error) {
	if !holders[0].Held {
		return distlock.LockInfo{}, errors.New("the lock is free; nothing was changed")
	}
	for _, h := range holders {
		switch {
		case h.Fence != b.fence || b.session != "" && b.session != h.Session.Hex():
			continue
		case b.session == "" && b.yes && h.BySession:
			return h, fmt.Errorf("the holder is foreign and does not raise the fence, so it may not "+
				"be the one that was shown; if it is, add --session %s; nothing was changed", h.Session.Hex())
		}
		return h, nil
	}
	has := fmt.Sprintf("the lock has fence %d, not %d", holders[0].Fence, b.fence)
	switch {
	case b.session != "":
		has = fmt.Sprintf("no holder has fence %d and session %s", b.fence, shown(b.session, 30))
	case len(holders) > 1:
		has = fmt.Sprintf("none of the %d holders has fence %d", len(holders), b.fence)
	}
	return distlock.LockInfo{}, fmt.Errorf("%s; nothing was changed", has)
}

func (b *breaker) explainFailure(err error) error {
	switch {
	case errors.Is(err, distlock.ErrFenceMismatch):
		return errors.New("the lock has changed since it was shown; the holder was not removed")
	case errors.Is(err, distlock.ErrOutcomeUnknown):
		return fmt.Errorf("it is unknown whether the lock was broken; list the locks again: %w", err)
	}
	return b.explain(err)
}

func describe(w io.Writer, holders, waiters []distlock.LockInfo) {
	how := layoutOf(w, false)
	describeHolders(w, how, holders)
	if len(waiters) == 0 {
		fmt.Fprintln(w, "no process waits for it")
		return
	}
	fmt.Fprintf(w, "%d queued for it, the next one:\n", len(waiters))
	describeOne(w, how, waiters[0])
}

func describeHolders(w io.Writer, how layout, holders []distlock.LockInfo) {
	first := holders[0]
	state := "held"
	switch {
	case !first.Held:
		state = "free"
	case first.Limit > 0:
		state = fmt.Sprintf("held, %d of %d permits are taken", len(holders), first.Limit)
	case len(holders) > 1:
		state = fmt.Sprintf("held by %d", len(holders))
	}
	fmt.Fprintf(w, "lock %s is %s\n", named(first.Name), state)
	for i, h := range holders {
		if i > 0 {
			fmt.Fprintln(w)
		}
		describeOne(w, how, h)
	}
}

// describeOne prints a holder, a waiter, or the last holder of a free lock.
func describeOne(w io.Writer, how layout, i distlock.LockInfo) {
	process, why, waits := shown(i.Process, longText), "why", i.Place > 0
	if _, elected := election.CandidateOf(i); elected { // the reason is the metadata of the candidate
		why = "metadata"
	}
	for _, line := range []struct {
		is         bool
		what, text string
	}{
		{waits, "process", process},
		{i.Held, "by", process},
		{!waits && !i.Held, "last by", process},
		{waits || i.Held, "caller", shown(words.Caller(i), longText)},
		{waits || i.Held, "mode", modeOf(i.Mode, i.Limit)},
		{true, why, shown(i.Why, longText)},
		{waits, "waited", age(i.Age)},
		{!waits, "since", instant(i.Since)},
		{i.Held, "held for", age(i.Age)},
		{true, "ping age", age(i.PingAge)},
		{!waits && i.Lease > 0, "lease", fmt.Sprintf("%v, renewed %s ago", i.Lease, age(i.LeaseAge))},
		{!waits, "fence", fmt.Sprint(i.Fence)},
	} {
		if line.is {
			wrap(w, how, fmt.Sprintf("  %-10s%s", line.what, line.text), "            ")
		}
	}
	for _, mark := range marks(i) {
		fmt.Fprintf(w, "  %-10s%s\n", "mark", mark)
	}
}

// noticeText describes the delay until a live holder notices a break.
func noticeText(holder distlock.LockInfo) string {
	within := ""
	if holder.PingEvery > 0 {
		within = fmt.Sprintf(", about every %v", holder.PingEvery)
	}
	return fmt.Sprintf("A holder that is alive detects the loss only with its next ping%s, and until "+
		"then works as if it held the lock.", within)
}
