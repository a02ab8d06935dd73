package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
	"mongodlm/internal/metrics"
)

// label marks the candidates of elections among those who want a lock.
const label = "election"

// A Func leads. Its context ends when leadership does, or when that of Run does; [context.Cause]
// says which: it matches [distlock.ErrLockLost], [ErrResigned], [ErrHandedOver] or
// [distlock.ErrClosed], or is the cause of Run's. It should return soon then. Returning ends the
// term.
type Func func(ctx context.Context, leader *Leadership) error

// An Election is one name for which processes stand. Make it with [New]; it holds nothing before
// Run. Safe for concurrent use; it stands once at a time.
type Election struct {
	manager *distlock.Manager
	name    string

	running atomic.Bool
	term    atomic.Pointer[term] // nil between terms
}

// New returns the election of that name. No I/O; the arguments are checked when it is used.
func New(manager *distlock.Manager, name string) *Election {
	return &Election{manager: manager, name: name}
}

// Run stands in the election of that name, see [Election.Run].
func Run(ctx context.Context, manager *distlock.Manager, name string, fn Func,
	opts ...Option) error {
	return New(manager, name).Run(ctx, fn, opts...)
}

// Run stands in the election and calls fn for every term that it wins, one after the other, until
// ctx ends. It waits in the lock's line, first come, first served, so a server that cannot be
// reached is waited for. It gives leadership up when fn has returned, and not before; a fn that
// still runs half of Config.Margin after its context has ended is logged once. An error of fn is
// logged, and the candidate stands again after a pause, see [Backoff]; a panic in fn is a
// *[PanicError], whose stack is logged, too.
//
// It returns nil once ctx has ended and fn has returned, or the error of fn in the last term; that
// it was told to end is none. With [Once] it returns what ended the term wrongly: the error of fn,
// a *distlock.LostError, a *distlock.ReleaseError; and the cause of ctx when that ended before the
// term. Other errors end it at once, joined with that of fn in the last term: [ErrMode],
// [ErrRunning], [distlock.ErrBadOption], [distlock.ErrBadName], [distlock.ErrClosed], and what
// makes waiting hopeless, see [distlock.DistributedLock.Lock].
//
// Round trips: one at the beginning, then those of Lock and Release.
func (e *Election) Run(ctx context.Context, fn Func, opts ...Option) error {
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if fn == nil {
		return fmt.Errorf("%w: the function given to Run is nil", distlock.ErrBadOption)
	}
	if err := e.usable(ctx); err != nil {
		return o.ending(ctx, err, nil)
	}
	if !e.running.CompareAndSwap(false, true) {
		return e.failed("stand in", ErrRunning)
	}
	defer e.running.Store(false)
	if _, _, err := e.look(ctx); err != nil && worthStopping(err) {
		return err
	}
	for _, fn := range o.told {
		defer e.tell(ctx, fn)()
	}
	defer metrics.StandsBy(e.observer(), label, e.name)()
	clk := clock.From(ctx)
	var last error // of fn in the last term
	for failures := 0; ; {
		guard, err := e.manager.Internal(leading.Key{}).Standby(e.name).Lock(ctx, o.lock()...)
		if errors.Is(err, leading.ErrSlow) && ctx.Err() == nil {
			failures++
			pause := o.pause(clk, failures)
			e.log(err).Dur("pause", pause).Msg("no term begins")
			clock.Sleep(clk, pause, ctx.Done())
			continue
		}
		if err != nil {
			return o.ending(ctx, e.failed("stand in", errors.Join(err, last)), last)
		}
		t := newTerm(e, guard)
		failed, released := t.lead(fn, clk)
		if err, last = errors.Join(failed, released), nil; failed != nil {
			last = e.failed("lead", failed)
		}
		if failures++; err == nil || t.told != nil {
			failures = 0
		}
		pause := o.pause(clk, failures)
		if failed != nil || err != nil && t.told == nil {
			e.log(err).Int("failures", failures).Dur("pause", pause).Msg("a term ended with an error")
		}
		switch {
		case o.once:
			return err
		case ctx.Err() != nil && errors.Is(released, distlock.ErrReleaseFailed):
			return errors.Join(last, released)
		case ctx.Err() != nil:
			return last
		case errors.Is(released, distlock.ErrClosed):
			return errors.Join(last, released)
		case t.told == nil && !clock.Sleep(clk, pause, ctx.Done()):
			return last
		}
	}
}

// ending is what Run returns when it cannot go on because of err: where that is the end of ctx, the
// error of the last term if any, but for who wants one term and had none.
func (o options) ending(ctx context.Context, err, last error) error {
	if ctx != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !o.once {
		return last
	}
	return err
}

// worthStopping reports whether the first look says that there is no sense in standing. What may
// pass Lock waits for.
func worthStopping(err error) bool {
	hopeless := []error{ErrMode, distlock.ErrBadName, distlock.ErrClosed, distlock.ErrMalformed}
	return slices.ContainsFunc(hopeless, func(one error) bool { return errors.Is(err, one) })
}

// usable refuses arguments with which nothing could be done.
func (e *Election) usable(ctx context.Context) error {
	switch {
	case e == nil || e.manager == nil:
		return fmt.Errorf("%w: the election has no Manager; make it with New", distlock.ErrBadOption)
	case ctx == nil:
		return fmt.Errorf("%w: the context is nil; pass context.Background()", distlock.ErrBadOption)
	case ctx.Err() != nil:
		return e.failed("use", context.Cause(ctx))
	}
	return nil
}

// observer is told who leads.
func (e *Election) observer() metrics.Observer { return metrics.Of(e.manager.Config().Observer) }

// IsLeader reports whether this Election leads: its function runs, was not told to end, and the
// guard may be trusted at this instant, by the clock. Another may lead when the answer is used: for
// a step that must not be taken by two, give the fence to what it writes to. No I/O.
func (e *Election) IsLeader() bool {
	if e == nil {
		return false
	}
	t := e.term.Load()
	return t != nil && t.runs.Load() && t.ctx.Err() == nil && t.guard.Err() == nil
}

// Resign ends the term that this Election is in: it ends the context of the function, waits for it,
// and gives leadership to the next in line; this candidate goes to the end of the line. It returns
// when that is done, nil if leadership was held until then. When ctx ends before, it returns its
// cause, and the term ends all the same as soon as the function returns. Inside of the function
// return instead; called there with the function's context Resign returns [ErrResigned].
//
// Errors: [ErrNotLeader], and nothing is told to stop; a *distlock.LostError; a
// *distlock.ReleaseError. Round trips: those of [distlock.TryGuard.Release].
func (e *Election) Resign(ctx context.Context) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	t := e.term.Load()
	if t == nil || !t.stop(ErrResigned) {
		return e.failed("resign from", ErrNotLeader)
	}
	return t.wait(ctx)
}

// Handover ends the term that this Election is in as Resign does, but for the named candidate: the
// one whose process id or metadata is to, the first in line of several. It puts the candidate at
// the front of the line, before the function is told to end; then the command that ends this term
// begins the next, so that there is no instant without a leader in the lock document, and none with
// two. It returns nil when the candidate led at a look afterwards.
//
// A candidate that is not in line, or has not pinged for two ping intervals, is refused with
// [ErrNoCandidate], and the function goes on. One that died a moment ago cannot be told from a
// living one: it is elected, and replaced after the takeover time. One that gives up while the
// function ends is passed over.
//
// Errors: [ErrNotLeader]; [ErrNoCandidate]; those of the guard and of a command, with which
// leadership is kept; those of Resign. Round trips: two looks, a read and a compare-and-set, and
// the release.
func (e *Election) Handover(ctx context.Context, to string) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	t := e.term.Load()
	if t == nil {
		return e.failed("hand over", ErrNotLeader)
	}
	_, line, err := e.look(ctx)
	if err != nil {
		return err
	}
	candidate, err := find(line, to)
	if err != nil {
		return e.failed("hand over", err)
	}
	if err := e.manager.Internal(leading.Key{}).PutFirst(ctx, t.guard, candidate.Session); err != nil {
		if errors.Is(err, leading.ErrNotQueued) {
			err = fmt.Errorf("%w: %w", ErrNoCandidate, err)
		}
		return e.failed("hand over", err)
	}
	if !t.stop(ErrHandedOver) {
		return e.failed("hand over", ErrNotLeader)
	}
	if err := t.wait(ctx); err != nil {
		return err
	}
	leader, err := e.Leader(ctx)
	if err == nil && leader.Session != candidate.Session {
		err = e.failed("hand over", fmt.Errorf("%w: %s does not lead; it left the line, or has led "+
			"already", ErrNoCandidate, quoted(to)))
	}
	return err
}

// find looks for a living candidate.
func find(line []distlock.LockInfo, to string) (Candidate, error) {
	found := 0
	for _, one := range line {
		c := candidateOf(one)
		if to == "" || c.Process != to && c.Metadata != to {
			continue
		}
		if found++; !silent(one) {
			return c, nil
		}
	}
	if found > 0 {
		return Candidate{}, fmt.Errorf("%w: %s is silent, its process may be dead", ErrNoCandidate,
			quoted(to))
	}
	return Candidate{}, fmt.Errorf("%w: %s is neither process id nor metadata of one who waits",
		ErrNoCandidate, quoted(to))
}

// silent reports whether a process has not pinged for two of its intervals.
func silent(one distlock.LockInfo) bool {
	return one.Condemned || one.PingAge < 0 || one.PingAge > 2*one.PingEvery
}

// RequestYield asks the leader to resign: its [Leadership.YieldRequested] closes within a reading,
// and it may do as it likes. The request is for the term in which it arrives and never reaches the
// next leader. why is at most 1 KiB. A read and a compare-and-set.
//
// Errors: [ErrNobody]; [distlock.ErrBadOption] for why; [distlock.ErrOutcomeUnknown]:
// ask again; [distlock.ErrUnavailable]; [distlock.ErrClosed]; a *distlock.MalformedError.
func (e *Election) RequestYield(ctx context.Context, why string) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	err := e.manager.Internal(leading.Key{}).RequestYield(ctx, e.name, why)
	if errors.Is(err, leading.ErrNotHeld) {
		return e.failed("request the yield of", fmt.Errorf("%w: %w", ErrNobody, err))
	}
	return err
}

// printable is a name for the log.
func (e *Election) printable() string { return catalog.Printable(e.name, 200) }
