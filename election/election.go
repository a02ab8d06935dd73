package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

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

// An Election runs a candidate for one name, and reads the current leader of that name. Make it
// with [New]. It holds no lock before Run. It is safe for concurrent use, but only one Run at a
// time.
type Election struct {
	manager *distlock.Manager
	name    string

	running atomic.Bool
	term    atomic.Pointer[term] // nil unless the function runs
}

// New returns an Election with the given name. It does no I/O. The methods of the Election check
// the arguments of New.
func New(manager *distlock.Manager, name string) *Election {
	return &Election{manager: manager, name: name}
}

// Run calls the method [Election.Run] of a new Election.
func Run(ctx context.Context, manager *distlock.Manager, name string, fn Func,
	opts ...Option) error {
	return New(manager, name).Run(ctx, fn, opts...)
}

// Run runs a candidate until ctx ends. The candidate waits in the queue of the lock, which is first
// come, first served. It continues to wait while the server is unavailable. In each term of this
// candidate, Run calls fn, and releases the lock only after fn has returned. Then the candidate
// queues again. Unless the term ended by a resignation, a hand-over or a loss, the candidate first
// pauses, see [Backoff]. If fn returns an error, Run logs it. If fn panics, its error is a
// *[PanicError], and Run logs the stack. If fn still runs when half of Config.Margin has passed
// since the end of its context, Run logs that, too.
//
// When ctx has ended and fn has returned, Run returns the error of fn in the last term, or nil. Run
// ignores an error that only reports the end of the context. If the release fails, Run joins the
// *distlock.ReleaseError. With [Once], Run returns the error of the only term: the error of fn, a
// *distlock.LostError or a *distlock.ReleaseError. If ctx ends before that term, Run returns the
// cause of ctx.
//
// The following errors end Run immediately: [ErrMode], [ErrRunning], [distlock.ErrBadOption],
// [distlock.ErrBadName], [distlock.ErrClosed], and the errors that end a wait, see
// [distlock.DistributedLock.Lock]. Run returns them joined with the error of fn in the last term.
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
		failed := t.lead(fn, clk)
		released := t.outcome
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

// ending returns the result of Run after the error err. If err only reports the end of ctx, and the
// option Once is not set, the result is last, the error of the last term. Otherwise it is err.
func (o options) ending(ctx context.Context, err, last error) error {
	if ctx != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !o.once {
		return last
	}
	return err
}

// worthStopping reports whether an error of the first read is permanent.
func worthStopping(err error) bool {
	hopeless := []error{ErrMode, distlock.ErrBadName, distlock.ErrClosed, distlock.ErrMalformed}
	return slices.ContainsFunc(hopeless, func(one error) bool { return errors.Is(err, one) })
}

// usable returns an error if e has no Manager, or if ctx is nil or has ended.
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

// IsLeader reports whether this Election leads now. It leads if its function runs, the context of
// the function has not ended, and the guard is trusted. The leadership may end immediately after
// the call, so pass the fence to the protected resource. IsLeader does no I/O.
func (e *Election) IsLeader() bool {
	if e == nil {
		return false
	}
	t := e.term.Load()
	return t != nil && t.ctx.Err() == nil && t.guard.Err() == nil
}

// Resign ends the term of this Election. It ends the context of the function, waits for the
// function, and releases the lock to the next candidate. The former leader goes to the end of the
// queue. Resign returns nil if the leadership was held until the release. If ctx ends first, Resign
// returns the cause of ctx, and the term ends when the function returns.
//
// The function itself should return instead of calling Resign. If it calls Resign with its own
// context, Resign does not wait and returns [ErrResigned].
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

// Handover ends the term of this Election as Resign does, and makes a chosen candidate lead next.
// The last argument is the process id or the metadata of that candidate, the first in the queue if
// several match. Handover moves the candidate to the front of the queue before it ends the context
// of the function. It returns nil if a read after the release shows that the candidate leads.
//
// If the candidate is not queued or has missed two pings, Handover returns [ErrNoCandidate] and the
// function continues. If the candidate died more recently, it is still elected, and is replaced
// after the takeover time. If the candidate leaves the queue before the function returns, another
// candidate leads and Handover returns [ErrNoCandidate].
//
// Errors: [ErrNotLeader]; [ErrNoCandidate]; the error of a lost guard; the errors of Resign; the
// error of a failed command. If a command before the release fails, this Election still leads.
// Round trips: two reads of the queue, a read, a compare-and-set, and the release.
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

// find returns the first candidate that is not silent and has the given process id or metadata.
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
	return Candidate{}, fmt.Errorf("%w: %s is neither the process id nor the metadata of a waiter",
		ErrNoCandidate, quoted(to))
}

// silent reports whether a process is condemned, has no ping, or has missed two pings.
func silent(one distlock.LockInfo) bool {
	return one.Condemned || one.PingAge < 0 || one.PingAge > 2*one.PingEvery
}

// RequestYield asks the leader to resign. It closes the channel of [Leadership.YieldRequested] in
// the leader's process. The leader decides whether it resigns. The request applies to the current
// term only. The last argument is the reason, at most 1 KiB. RequestYield sends a read and a
// compare-and-set.
//
// Errors: [ErrNobody]; [distlock.ErrBadOption] if the reason is not valid;
// [distlock.ErrOutcomeUnknown], after which the caller may ask again; [distlock.ErrUnavailable];
// [distlock.ErrClosed]; a *distlock.MalformedError.
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
