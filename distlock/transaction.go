package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
	"mongodlm/internal/waitqueue"
)

// LockInTransaction acquires the lock inside the caller's transaction, which ctx carries as
// Session.WithTransaction hands it on, and holds it until the commit or the abort: there is no
// guard, no fence, and nothing to release. Call it first in the transaction. PostgreSQL:
// pg_advisory_xact_lock.
//
// Others wait in the server for the uncommitted write to the lock document, each with a connection,
// or meet a write conflict. No clock matters: what the transaction writes appears while the lock is
// held, or not at all. MongoDB ends a transaction after 60 s (transactionLifetimeLimitSeconds).
//
// While a guard holds the lock the call polls outside of the transaction, without a place in the
// line, and takes over a dead holder. A transaction that has read before sees an older state: then
// the error has the driver's label for it, and WithTransaction runs the function again.
//
// Errors: as Lock; [ErrNoTransactions]; [ErrBadOption] for [Shared], [Permits], [Lease].
func (l *DistributedLock) LockInTransaction(ctx context.Context, opts ...Option) error {
	c, err := l.prepare(ctx, opts)
	if err != nil {
		return err
	}
	if c.o.mode != catalog.Exclusive {
		return fmt.Errorf("%w: a lock of a transaction is exclusive; leave Shared and Permits out",
			ErrBadOption)
	}
	if c.o.leased {
		return fmt.Errorf("%w: a lock of a transaction lives as long as that; leave Lease out", ErrBadOption)
	}
	if err := c.m.standsInOwnWay(ctx, c.name, c.o); err != nil {
		return err
	}
	ctx, done := c.m.calling(ctx, c.o)
	defer done()
	c.pause = c.m.cfg.Poll
	defer c.leaveLocalLine()
	for {
		err := c.enterTransaction(ctx)
		if err == nil {
			return nil
		}
		var again *againError
		switch {
		case ctx.Err() != nil && c.o.parent.Err() == nil: // no label: the driver must not run it again
			if !errors.Is(err, ErrHeld) || errors.As(err, &again) {
				err = withoutLabel(err)
			}
			return c.stoppedBy(ctx, err)
		case !errors.Is(err, ErrHeld), errors.As(err, &again), c.o.bounded && c.o.wait == 0:
			return err
		}
		c.last = err
		if c.place == nil {
			c.place = c.m.queue.Join(c.name, c.party(ctx), waitqueue.Aside)
		}
		if err := c.sleep(ctx); err != nil {
			return err
		}
	}
}

// enterTransaction looks from outside of the transaction, and enters the lock inside of it if it is
// free: a transaction reads one picture only, so waiting in it would be of no use.
func (c *call) enterTransaction(ctx context.Context) error {
	if err := c.begin(catalog.Try); err != nil {
		return err
	}
	defer c.m.owned.attemptEnded(c.request.TS)
	fail := func(err error) error {
		return fmt.Errorf("distlock: acquire %s in a transaction: %w", quoted(c.name), err)
	}
	s, err := c.m.judge.Look(ctx, c.name)
	if err != nil {
		return fail(err)
	}
	if err := s.Malformed(); err != nil {
		return fail(err)
	}
	if !s.Free() || s.Lock != nil && len(s.Lock.Waiters) > 0 {
		if err := c.clearDead(ctx, s); err != nil {
			return err
		}
	}
	_, err = c.m.locks.EnterTransaction(ctx, c.request)
	switch {
	case errors.Is(err, catalog.ErrNotFree):
		return &againError{fmt.Errorf("%w: the transaction began before the lock was free; run it "+
			"again: %w", c.heldError(s), err)}
	case err != nil:
		return fail(err)
	}
	return nil
}

// clearDead takes the dead out of the way, and returns a *HeldError when others are, or a
// *PermitMismatchError when one of them lives and it is a semaphore.
func (c *call) clearDead(ctx context.Context, s contend.Scene) error {
	_, err := c.m.judge.EvictDead(ctx, s, len(s.Judged))
	if err != nil && !errors.Is(err, catalog.ErrNoMatch) {
		return acquiring(c.name, err)
	}
	if !slices.ContainsFunc(s.Judged, func(one contend.Judged) bool { return !one.Dead() }) {
		return nil
	}
	c.m.judge.Keep(s)
	if other := s.OtherLimit(0); other != nil && !s.Silent(0) {
		return acquiring(c.name, other)
	}
	return c.heldError(s)
}

// withoutLabel is an error that has no label of the driver's, and matches of our errors what it
// did. One that has no more to say than that label is of a conflict: another transaction has the
// lock, or had it.
func withoutLabel(err error) error {
	bare := &acquireError{text: err.Error()}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			bare.causes = append(bare.causes, c.err)
		}
	}
	var labeled interface{ HasErrorLabel(string) bool }
	if len(bare.causes) == 0 && errors.As(err, &labeled) && labeled.HasErrorLabel(mustRunAgain) {
		bare.causes = []error{ErrHeld}
	}
	return bare
}

// mustRunAgain is the driver's label for an error after which a transaction may run again.
const mustRunAgain = "TransientTransactionError"

// An againError says that the transaction sees an old picture.
type againError struct{ error }

// HasErrorLabel implements mongo.LabeledError.
func (*againError) HasErrorLabel(label string) bool { return label == mustRunAgain }

// Unwrap returns what was refused.
func (e *againError) Unwrap() error { return e.error }
