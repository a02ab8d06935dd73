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

// label is the lock label of all candidates.
const label = "election"

// A Func is the work of a leader. Its context ends with the leadership or with the context of Run.
// [context.Cause] then matches [distlock.ErrLockLost], [ErrResigned], [ErrHandedOver] or
// [distlock.ErrClosed], or is the cause of Run's context. The function should return soon after
// that. Its return ends the term.
type Func func(ctx context.Context, leader *Leadership) error

// An Election is a name for which candidates run. Make it with [New]. It holds no lock before Run.
// It is safe for concurrent use, with one Run at a time.
type Election struct {
	manager *distlock.Manager
	name    string

	running atomic.Bool
	term    atomic.Pointer[term] // nil between terms
}

// New returns the election of that name. It does no I/O; the methods check the arguments.
func New(manager *distlock.Manager, name string) *Election {
	return &Election{manager: manager, name: name}
}

// Run runs a candidate of that name, see [Election.Run].
func Run(ctx context.Context, manager *distlock.Manager, name string, fn Func,
	opts ...Option) error {
	return New(manager, name).Run(ctx, fn, opts...)
}

// Run runs a candidate until ctx ends. The candidate waits in the queue of the lock, which is first
// come, first served. It continues to wait while the server is unavailable. Run calls fn for every
// term that the candidate wins, and releases the lock only after fn has returned. It logs an error
// of fn, and the candidate queues again after a pause, see [Backoff]. A panic in fn is a
// *[PanicError], logged with its stack. Run also logs if fn has not returned when half of
// Config.Margin has passed since the end of its context.
//
// When ctx has ended and fn has returned, Run returns the error of fn in the last term, or nil. A
// *distlock.ReleaseError is joined to it. Run ignores an error that only reports the end of the
// context. With [Once] it returns the error of the only term: the error of fn, a
// *distlock.LostError or a *distlock.ReleaseError. If ctx ends before that term, Run returns the
// cause of ctx.
//
// These errors end Run immediately, joined with the error of fn in the last term: [ErrMode],
// [ErrRunning], [distlock.ErrBadOption], [distlock.ErrBadName], [distlock.ErrClosed], and the
// errors that end a wait, see [distlock.DistributedLock.Lock].
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
	var last error // the error of fn in the last term
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

// ending returns the result of Run after the error err. Without Once, the end of ctx is not an
// error, and the result is the error of the last term.
func (o options) ending(ctx context.Context, err, last error) error {
	if ctx != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !o.once {
		return last
	}
	return err
}

// worthStopping reports whether Run must return the error of its first reading. It is false for a
// temporary error.
func worthStopping(err error) bool {
	hopeless := []error{ErrMode, distlock.ErrBadName, distlock.ErrClosed, distlock.ErrMalformed}
	return slices.ContainsFunc(hopeless, func(one error) bool { return errors.Is(err, one) })
}

// usable returns an error if no method can use the Election or ctx.
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

func (e *Election) observer() metrics.Observer { return metrics.Of(e.manager.Config().Observer) }

// IsLeader reports whether this Election leads now: its function runs, its term was not stopped,
// and its guard is trusted. Another candidate may lead a moment later, so pass the fence to the
// protected resource. IsLeader does no I/O.
func (e *Election) IsLeader() bool {
	if e == nil {
		return false
	}
	t := e.term.Load()
	return t != nil && t.runs.Load() && t.ctx.Err() == nil && t.guard.Err() == nil
}

// Resign ends the term of this Election. It ends the context of the function, waits for the
// function, and releases the lock to the next candidate. The candidate that resigned goes to the
// end of the queue. Resign returns nil if the leadership was held until the release. If ctx ends
// first, Resign returns its cause, and the term ends when the function returns. The function itself
// should return instead of calling Resign. If the function calls Resign with its own context,
// Resign does not wait and returns [ErrResigned].
//
// Errors: [ErrNotLeader] if there is no term; a *distlock.LostError; a *distlock.ReleaseError.
// Round trips: those of [distlock.TryGuard.Release].
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

// Handover ends the term of this Election as Resign does, and lets a chosen candidate lead next:
// the first in the queue whose process id or metadata equals the argument. It moves the candidate
// to the front of the queue, and then ends the context of the function. The release of the lock
// grants it to the candidate. Handover returns nil if a reading afterwards shows that the candidate
// leads.
//
// Handover returns [ErrNoCandidate] if the candidate is not queued or has missed two pings. The
// function continues then. A candidate that died more recently is elected, and replaced after the
// takeover time. A candidate that leaves the queue before the function returns is passed over.
//
// Errors: [ErrNotLeader]; [ErrNoCandidate]; an error of the guard or of a command, after which
// leadership is kept; the errors of Resign. Round trips: two readings, a read, a compare-and-set,
// and the release.
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

// find returns the first living candidate with the given process id or metadata.
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

// silent reports whether a process is condemned, has no ping, or has missed two pings.
func silent(one distlock.LockInfo) bool {
	return one.Condemned || one.PingAge < 0 || one.PingAge > 2*one.PingEvery
}

// RequestYield asks the leader to resign. The channel of its [Leadership.YieldRequested] closes,
// and the leader decides. The request is for the current term only. The reason is at most 1 KiB.
// RequestYield costs a read and a compare-and-set.
//
// Errors: [ErrNobody]; [distlock.ErrBadOption] for the reason; [distlock.ErrOutcomeUnknown]: ask
// again; [distlock.ErrUnavailable]; [distlock.ErrClosed]; a *distlock.MalformedError.
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

// printable returns the election's name, escaped for the log.
func (e *Election) printable() string { return catalog.Printable(e.name, 200) }
