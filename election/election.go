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

// label is the label of all candidates.
const label = "election"

// A Func leads. Its context ends with its leadership, or with the context of Run; [context.Cause]
// then matches [distlock.ErrLockLost], [ErrResigned], [ErrHandedOver] or [distlock.ErrClosed], or
// is the cause of Run's context. It should return soon then. Returning ends the term.
type Func func(ctx context.Context, leader *Leadership) error

// An Election is one name for which candidates run. Make it with [New]; it holds no lock before
// Run. Safe for concurrent use; one Run at a time.
type Election struct {
	manager *distlock.Manager
	name    string

	running atomic.Bool
	term    atomic.Pointer[term] // nil between terms
}

// New returns the election of that name. No I/O; the methods check the arguments.
func New(manager *distlock.Manager, name string) *Election {
	return &Election{manager: manager, name: name}
}

// Run runs a candidate of that name, see [Election.Run].
func Run(ctx context.Context, manager *distlock.Manager, name string, fn Func,
	opts ...Option) error {
	return New(manager, name).Run(ctx, fn, opts...)
}

// Run runs a candidate: it calls fn for every term that it wins, one after the other, until ctx
// ends. It waits in the queue of the lock, first come, first served, also while the server cannot
// be reached. It releases the lock after fn has returned, not before; a fn that still runs half of
// Config.Margin after the end of its context is logged once. An error of fn is logged, and the
// candidate queues again after a pause, see [Backoff]; a panic in fn is a *[PanicError], logged
// with its stack.
//
// After the end of ctx it returns nil when fn has returned, or the error of fn in the last term,
// unless that error only reports the end of the context. With [Once] it returns the failure of the
// term: the error of fn, a *distlock.LostError, a *distlock.ReleaseError; or the cause of ctx if
// ctx ended before the term. Other errors end it immediately, joined with the error of fn in the
// last term: [ErrMode], [ErrRunning], [distlock.ErrBadOption], [distlock.ErrBadName],
// [distlock.ErrClosed], and the errors that end a wait, see [distlock.DistributedLock.Lock].
//
// Round trips: one at the beginning, then as Lock and Release.
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
		return e.failed("run for", ErrRunning)
	}
	defer e.running.Store(false)
	if _, _, err := e.read(ctx); err != nil && worthStopping(err) {
		return err
	}
	for _, fn := range o.onLeader {
		defer e.observeFor(ctx, fn)()
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
			return o.ending(ctx, e.failed("run for", errors.Join(err, last)), last)
		}
		t := newTerm(e, guard)
		failed, released := t.lead(fn, clk)
		if err, last = errors.Join(failed, released), nil; failed != nil {
			last = e.failed("lead", failed)
		}
		if failures++; err == nil || t.cause != nil {
			failures = 0
		}
		pause := o.pause(clk, failures)
		if failed != nil || err != nil && t.cause == nil {
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
		case t.cause == nil && !clock.Sleep(clk, pause, ctx.Done()):
			return last
		}
	}
}

// ending returns the result of Run when err ends it: if err is the end of ctx, the error of the
// last term, unless Once had no term.
func (o options) ending(ctx context.Context, err, last error) error {
	if ctx != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !o.once {
		return last
	}
	return err
}

// worthStopping reports whether the first reading shows that no term can begin. Lock waits out
// temporary errors.
func worthStopping(err error) bool {
	hopeless := []error{ErrMode, distlock.ErrBadName, distlock.ErrClosed, distlock.ErrMalformed}
	return slices.ContainsFunc(hopeless, func(one error) bool { return errors.Is(err, one) })
}

// usable returns an error for arguments that no method can use.
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

// observer returns the receiver of the metrics.
func (e *Election) observer() metrics.Observer { return metrics.Of(e.manager.Config().Observer) }

// IsLeader reports whether this Election leads: its function runs, its term was not stopped, and
// the guard may be trusted at this instant, by the clock. Another candidate may lead when the
// result is used: for a step that must not be taken twice, pass the fence to the protected
// resource. No I/O.
func (e *Election) IsLeader() bool {
	if e == nil {
		return false
	}
	t := e.term.Load()
	return t != nil && t.runs.Load() && t.ctx.Err() == nil && t.guard.Err() == nil
}

// Resign ends the term of this Election: it ends the context of the function, waits for it, and
// releases the lock to the next candidate; this candidate goes to the end of the queue. It returns
// nil if leadership was held until then. If ctx ends before, Resign returns its cause, and the term
// still ends as soon as the function returns. The function itself returns instead of calling
// Resign; called with the function's context Resign returns [ErrResigned].
//
// Errors: [ErrNotLeader], and no function is stopped; a *distlock.LostError; a
// *distlock.ReleaseError. Round trips: as [distlock.TryGuard.Release].
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

// Handover ends the term of this Election as Resign does, but for the candidate whose process id or
// metadata is to, the first one in the queue of several. It moves the candidate to the front of the
// queue before it ends the context of the function; then the command that ends this term begins the
// next, so that the lock document always names one leader. It returns nil if the candidate led at a
// reading afterwards.
//
// A candidate that is not queued, or has not pinged for two ping intervals, is refused with
// [ErrNoCandidate], and the function continues. A candidate that died a moment ago counts as alive:
// it is elected, and replaced after the takeover time. A candidate that gives up before the
// function returns is passed over.
//
// Errors: [ErrNotLeader]; [ErrNoCandidate]; errors of the guard and of a command, after which
// leadership is kept; as Resign. Round trips: two readings, a read and a compare-and-set, and
// the release.
func (e *Election) Handover(ctx context.Context, to string) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	t := e.term.Load()
	if t == nil {
		return e.failed("hand over", ErrNotLeader)
	}
	_, queue, err := e.read(ctx)
	if err != nil {
		return err
	}
	candidate, err := find(queue, to)
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
		err = e.failed("hand over", fmt.Errorf("%w: %s does not lead; it left the queue, or has led "+
			"already", ErrNoCandidate, quoted(to)))
	}
	return err
}

// find returns the first living candidate of that process id or metadata.
func find(queue []distlock.LockInfo, to string) (Candidate, error) {
	found := 0
	for _, one := range queue {
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
	return Candidate{}, fmt.Errorf("%w: %s is neither process id nor metadata of a waiter",
		ErrNoCandidate, quoted(to))
}

// silent reports whether a process has not pinged for two of its intervals.
func silent(one distlock.LockInfo) bool {
	return one.Condemned || one.PingAge < 0 || one.PingAge > 2*one.PingEvery
}

// RequestYield asks the leader to resign: its [Leadership.YieldRequested] closes within a reading,
// and the leader decides. The request is for the current term and never reaches the next leader.
// why is at most 1 KiB. A read and a compare-and-set.
//
// Errors: [ErrNobody]; [distlock.ErrBadOption] for why; [distlock.ErrOutcomeUnknown]: ask again;
// [distlock.ErrUnavailable]; [distlock.ErrClosed]; a *distlock.MalformedError.
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

// printable returns the name for the log.
func (e *Election) printable() string { return catalog.Printable(e.name, 200) }
