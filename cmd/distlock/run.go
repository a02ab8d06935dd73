package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"mongodlm/adapters/prometheus"
	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// The environment variables that "distlock run" sets for its command.
const (
	envName  = "DISTLOCK_NAME"
	envFence = "DISTLOCK_FENCE"
)

// defaultGrace is the default time between SIGTERM and SIGKILL. A short takeover time reduces it.
const defaultGrace = 5 * time.Second

// lostCloseLimit bounds the cleanup after a loss, when the server may be unreachable.
const lostCloseLimit = 2 * time.Second

type runner struct {
	connection
	logging
	metrics               metrics
	name, why             string
	wait                  waitLimit
	grace, ping, takeover time.Duration
	margin                time.Duration
	shared, verbose       bool
	permits               int
	command               []string
}

func (r *runner) flags(f *pflag.FlagSet) {
	r.connection.flags(f)
	r.logging.flags(f)
	r.metrics.flags(f)
	f.StringVar(&r.why, "why", "", "the reason, for others to read; default: the command's name")
	f.Func("wait", "wait in the queue for this `time`, or without a limit: --wait, "+
		"--wait=forever;\ndefault: try once", r.wait.set)
	f.Lookup("wait").NoOptDefVal = forever
	f.BoolVarP(&r.verbose, "verbose", "v", false,
		"print the reason for a wait, even without a terminal")
	f.BoolVar(&r.shared, "shared", false, "share the lock with other --shared holders")
	f.IntVar(&r.permits, "permits", 0,
		"share the lock among at most `N` holders; all must use the same N")
	f.DurationVar(&r.grace, "grace", defaultGrace,
		"time between SIGTERM and SIGKILL; the default is shorter for a short --takeover")
	f.DurationVar(&r.ping, "ping", words.DefaultPing, "time between two heartbeats")
	f.DurationVar(&r.takeover, "takeover", words.DefaultTakeover,
		"how long a holder must be silent before others may take the lock over")
}

func (r *runner) accept(c call) error {
	if err := runSupported(); err != nil {
		return err
	}
	var err error
	dash := c.ArgsLenAtDash()
	switch {
	case dash < 0:
		return errors.New("the command is missing: write it after \" -- \"")
	case c.Arg(dash) == "":
		return errors.New("there is no command after \"--\"")
	case r.wait.limit < 0:
		return fmt.Errorf("--wait is %v, must not be negative", r.wait.limit)
	case r.shared && c.Changed("permits"):
		return errors.New("--shared and --permits are mutually exclusive: omit one of them")
	case c.Changed("permits") && (r.permits < 1 || r.permits > catalog.MaxHolders):
		return fmt.Errorf("--permits is %d, must be 1 to %d", r.permits, catalog.MaxHolders)
	case r.grace < 0:
		return fmt.Errorf("--grace is %v, must not be negative", r.grace)
	case r.ping == 0: // the Manager would use the default
		return errors.New("--ping is 0s, must be at least 1ms")
	case r.takeover == 0:
		return errors.New("--takeover is 0s, must be more than three pings")
	}
	if r.name, err = lockName(c.Args()[:dash]); err != nil {
		return err
	}
	r.command = c.Args()[dash:]
	if !c.Changed("why") {
		r.why = catalog.Printable(r.command[0], 200) // the command's arguments may be secrets
	}
	if problem := catalog.BadText(r.why, maxText); problem != "" {
		return fmt.Errorf("--why %s", problem)
	}
	if err := r.metrics.accept(); err != nil {
		return err
	}
	if err := r.connection.accept(c); err != nil {
		return err
	}
	return r.setMargin(c.Changed("grace"))
}

// setMargin chooses the margin so that SIGKILL comes before a takeover of the lock:
//
//	grace + takeover/10 <= margin, and ping*3 <= takeover - margin
//
// The tenth of the takeover time is a reserve for late timers and for clocks with different rates.
// A short takeover time reduces the default grace period, but not the value of --grace.
func (r *runner) setMargin(explicit bool) error {
	maxGrace := max(0, r.takeover-r.takeover/10-3*r.ping)
	if !explicit {
		r.grace = min(defaultGrace, r.takeover/4, maxGrace)
	}
	r.margin = max(r.takeover/4, r.grace+r.takeover/10)
	err := problems(r.config().Validate())
	if err != nil && r.grace > maxGrace && maxGrace > 0 {
		return fmt.Errorf("--grace is %v, must be at most %v with --takeover %v and --ping %v: SIGKILL "+
			"must come before other processes may take the lock over", r.grace, maxGrace, r.takeover, r.ping)
	}
	return err
}

func (r *runner) config() distlock.Config {
	return distlock.Config{
		URI: r.uri, Database: r.database, Ping: r.ping, Takeover: r.takeover, Margin: r.margin,
	}
}

func (r *runner) run(ctx context.Context, s stdio) error {
	path, err := exec.LookPath(r.command[0])
	if err != nil {
		code := exitNotRunnable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		return exit{code, err}
	}
	st, err := r.connection.open(ctx, 0, r.logging)
	if err != nil {
		return r.refused(ctx, err)
	}
	defer st.close() // runs after the Manager is closed
	signals, stop := catchSignals()
	defer stop()
	collector, err := prometheus.New(prometheus.Options{Names: []string{r.name}})
	if err != nil {
		return err
	}
	closeMetrics, err := r.metrics.serve(ctx, s.say, collector)
	if err != nil {
		return err
	}
	defer closeMetrics()
	cfg := r.config()
	cfg.Logger, cfg.Client = st.log, st.client
	cfg.Observer = distlock.Observers(collector, recorder(st.history, r.database))
	manager, err := distlock.New(ctx, cfg)
	if err != nil {
		return r.refused(ctx, err)
	}
	collector.Watch(manager)
	guard, err := r.acquire(ctx, manager, s)
	if err != nil {
		if closed := bounded(closeLimit, manager.Close); closed != nil {
			s.say("%s", errorText(closed))
		}
		return r.refused(ctx, err)
	}
	code, err := r.runCommand(guard, path, s, signals)
	return r.outcome(manager, guard, code, err, s)
}

// outcome releases the lock and returns the result of "distlock run". The parameters code and err
// are the results of runCommand.
func (r *runner) outcome(m *distlock.Manager, guard *distlock.TryGuard, code int, err error,
	s stdio) error {
	if errors.Is(err, distlock.ErrLockLost) {
		_ = bounded(lostCloseLimit, m.Close) // the lock is already lost
		return exit{exitLost, err}
	}
	released := guard.Release()
	closed := bounded(closeLimit, m.Close)
	mayBeHeld := released != nil && closed != nil // Close has tried once more to release
	switch {
	case errors.Is(released, distlock.ErrLockLost):
		return exit{exitLost, fmt.Errorf("the command ended with %d, but %w", code, released)}
	case mayBeHeld && err == nil && code == 0:
		return exit{exitMayBeHeld, r.mayBeHeld(released)}
	case mayBeHeld:
		s.say("%s", errorText(r.mayBeHeld(released)))
	case closed != nil:
		s.say("%s", errorText(closed))
	}
	if err == nil && code != 0 {
		return exit{code: code}
	}
	return err
}

func (r *runner) mayBeHeld(err error) error {
	var failed *distlock.ReleaseError
	if errors.As(err, &failed) { // the text announces more attempts, but this process ends
		err = failed.Err
	}
	return fmt.Errorf("the command has ended, but lock %q may be held until the takeover time (%v) "+
		"has passed: %w", shown(r.name, 200), r.takeover, err)
}

func (r *runner) options() []distlock.Option {
	opts := []distlock.Option{distlock.Why(r.why), distlock.Label("distlock run")}
	if !r.wait.forever {
		opts = append(opts, distlock.WaitAtMost(r.wait.limit))
	}
	switch {
	case r.shared:
		opts = append(opts, distlock.Shared())
	case r.permits > 0:
		opts = append(opts, distlock.Permits(r.permits))
	}
	return opts
}

// acquire acquires the lock. The end of ctx ends the wait, but not the guard, because the lock must
// stay held until the command has exited.
func (r *runner) acquire(ctx context.Context, m *distlock.Manager, s stdio) (
	*distlock.TryGuard, error,
) {
	hold, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	done := r.reportWait(hold, m, s)
	guard, err := m.Lock(r.name).Lock(hold, r.options()...)
	done()
	if stop() || err != nil {
		return guard, err
	}
	return nil, errors.Join(context.Cause(ctx), guard.Release())
}

func (r *runner) refused(ctx context.Context, err error) error {
	var by interrupted
	code := codeOf(err)
	switch {
	case errors.As(context.Cause(ctx), &by):
		return exit{exitSignal + int(by.signal), by}
	case code == exitWrongCall:
		err = problems(err)
	case code == exitUnavailable:
		err = r.explain(err)
	}
	return exit{code, err}
}

// Limits of the messages of "distlock run". While it waits for the lock, it prints the reason of
// the wait after reportAfter, and a changed reason at most once per reportEvery.
const (
	reportAfter = time.Second
	reportEvery = 10 * time.Second
)

// reportWait prints the reason of the wait until the returned function is called. It prints only if
// stderr is a terminal or --verbose is set. It reads the lock once per reportEvery.
func (r *runner) reportWait(ctx context.Context, m *distlock.Manager, s stdio) (stop func()) {
	if !r.verbose && !isTerminal(s.errOut) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		said := ""
		for pause := reportAfter; clock.Sleep(clock.System(), pause, ctx.Done()); pause = reportEvery {
			text, err := r.waitState(ctx, m)
			about := text
			if err != nil { // the acquisition continues in spite of the error
				text = named(r.name) + ": " + errorText(r.explain(err))
				about = "an error" // its text may differ between attempts
			}
			if text != "" && about != said && ctx.Err() == nil {
				said = about
				s.say("waiting for %s", text)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (r *runner) waitState(ctx context.Context, m *distlock.Manager) (string, error) {
	holders, waiters, err := m.Inspector().Holder(ctx, r.name)
	if err != nil || holders == nil || !holders[0].Held {
		return "", err
	}
	held := &distlock.HeldError{Name: r.name, Process: holders[0].Process, Why: holders[0].Why,
		Since: holders[0].Since, Holders: len(holders), Permits: holders[0].Limit}
	place := "not yet queued"
	own := func(w distlock.LockInfo) bool { return w.Self }
	if i := slices.IndexFunc(waiters, own); i >= 0 {
		place = fmt.Sprintf("place %d of %d in the queue", i+1, len(waiters))
	}
	return strings.TrimPrefix(errorText(held), "acquire ") + "; " + place, nil
}
