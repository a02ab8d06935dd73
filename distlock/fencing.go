package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/watch"
)

// fenceField is the field of a fenced document that stores the highest fence of its writers.
const fenceField = "_fence"

// Fenced adds this guard's fence to the filter and the update of a write to one document, by
// UpdateOne or FindOneAndUpdate, in any collection. The fenced filter excludes documents that a
// newer holder has written: an upsert of such a document fails with DuplicateKey. The fenced update
// stores the fence in the field _fence. If a write depends on the content of the document, read the
// document with a fenced FindOneAndUpdate. [TryGuard.InTransaction] also stops a stale holder on
// other documents. No I/O.
//
// Errors: as Err; [ErrBadOption] for an empty update, a replacement, a pipeline or an update of
// _fence, and for a guard with [Shared] or [Permits] above 1.
func (g *TryGuard) Fenced(filter, update bson.D) (fencedFilter, fencedUpdate bson.D, err error) {
	if err := g.Err(); err != nil {
		return nil, nil, err
	}
	if g.h.mode == catalog.Shared || g.h.limit > 1 {
		return nil, nil, fmt.Errorf("%w: the fence of %s cannot distinguish a stale guard from a "+
			"valid one, because Shared and Permits allow several at a time; use InTransaction",
			ErrBadOption, quoted(g.Name()))
	}
	if len(update) == 0 {
		return nil, nil, fmt.Errorf("%w: the update is empty", ErrBadOption)
	}
	most := bson.D{{Key: fenceField, Value: g.h.fence}}
	for _, e := range update {
		if e.Key == "" || e.Key[0] != '$' {
			return nil, nil, fmt.Errorf("%w: the update must consist of operators such as $set, not %q",
				ErrBadOption, catalog.Printable(e.Key, 100))
		}
		fields, ok := e.Value.(bson.D)
		if !ok {
			return nil, nil, fmt.Errorf("%w: the fields of %s must be a bson.D", ErrBadOption, e.Key)
		}
		for _, f := range fields {
			if f.Key == fenceField {
				return nil, nil, fmt.Errorf("%w: the update must not write %s itself", ErrBadOption, fenceField)
			}
		}
		if e.Key == "$max" {
			most = append(append(bson.D{}, fields...), most...)
			continue
		}
		fencedUpdate = append(fencedUpdate, e)
	}
	fencedUpdate = append(fencedUpdate, bson.E{Key: "$max", Value: most})
	notNewer := bson.D{{Key: "$or", Value: bson.A{
		bson.D{{Key: fenceField, Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: fenceField, Value: bson.D{{Key: "$lte", Value: g.h.fence}}}},
	}}}
	if len(filter) == 0 {
		return notNewer, fencedUpdate, nil
	}
	return bson.D{{Key: "$and", Value: bson.A{filter, notNewer}}}, fencedUpdate, nil
}

// InTransaction calls work in a MongoDB transaction that commits only while the lock is held. The
// transaction also writes to the lock document. If a takeover came before this write, the
// transaction writes nothing and fails with [ErrLockLost]. A later takeover waits for the end of
// the transaction, 60 s at most (transactionLifetimeLimitSeconds), so keep work short.
//
// Work must pass its context to every operation, and return the error of a failed operation. Use
// one client for all operations: Config.Client, or mongo.SessionFromContext(ctx).Client(). After an
// election or a write conflict, work may run again, so it must have no effects outside of the
// transaction. All runs together end at the latest with ctx, with the guard, or after Takeover -
// Margin. Transactions of one guard run one after the other, so work must not call InTransaction of
// the same guard. [TryGuard.Renew] with the context of work is part of the transaction; with
// another context it waits for the end, for at most Config.CommandTimeout.
//
// Errors: those of work and of Err, joined; *LostError, which also marks the guard as lost;
// [ErrNoTransactions], before work is called; [ErrBadOption] if ctx is the context of a transaction
// of this guard; [ErrOutcomeUnknown] if the outcome of the commit is unknown.
func (g *TryGuard) InTransaction(ctx context.Context, work func(ctx context.Context) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if work == nil {
		return fmt.Errorf("%w: the function given to InTransaction is nil", ErrBadOption)
	}
	if err := g.Err(); err != nil {
		return err
	}
	if g.h.transaction(ctx) != nil {
		return fmt.Errorf("%w: InTransaction of %s was called inside of itself: its transactions run "+
			"one after the other; do this work in the outer one", ErrBadOption, quoted(g.Name()))
	}
	hold := g.h.m.cfg.Takeover - g.h.m.cfg.Margin
	ctx, stopTimer := context.WithTimeout(ctx, hold)
	defer stopTimer()
	select { // two transactions of one guard would only conflict with each other
	case g.h.transacting <- struct{}{}:
		defer func() { <-g.h.transacting }()
	case <-ctx.Done():
		return fmt.Errorf("distlock: transaction under %s: another transaction of this guard, or a "+
			"renewal of its lease, is running: %w", quoted(g.Name()), context.Cause(ctx))
	case <-g.h.ctx.Done():
		return context.Cause(g.h.ctx)
	}
	t := new(transaction)
	ctx = context.WithValue(ctx, transactionOf{g.h}, t)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(g.h.ctx, func() { cancel(context.Cause(g.h.ctx)) })
	defer stop()
	var fromWork error
	err := g.h.m.locks.Transact(ctx, g.h.request.Session, func(ctx context.Context) error {
		if err := g.Err(); err != nil {
			return err
		}
		t.renewed = false
		fromWork = work(ctx)
		return fromWork
	})
	if err == nil && t.renewed {
		g.h.lease.renewed(g.h.m.cfg.Clock, t.sent)
	}
	over := g.Err()
	switch {
	case err == nil || over == nil && fromWork != nil && errors.Is(err, fromWork):
		return err
	case errors.Is(err, catalog.ErrNoMatch):
		g.h.lose(errors.New("the transaction found another session in the lock document"))
		return g.h.err()
	case errors.Is(err, catalog.ErrUnknownOutcome):
		err = fmt.Errorf("distlock: transaction under %s: %w", quoted(g.Name()), doubtful(err))
		return errors.Join(err, over)
	case over != nil && fromWork != nil && errors.Is(err, fromWork):
		return errors.Join(err, over)
	case over != nil:
		return over
	}
	return fmt.Errorf("distlock: %w", err)
}

// LockInTransaction acquires the lock inside the caller's transaction, and holds it until the
// commit or the abort, like pg_advisory_xact_lock of PostgreSQL. There is no guard, no fence and no
// release. The context ctx must carry the transaction, as in the callback of
// Session.WithTransaction. This call must be the first operation of the transaction.
//
// Until the transaction ends, after 60 s at most (transactionLifetimeLimitSeconds), other callers
// wait in the server, each with a connection, or get a write conflict. Clocks do not matter: the
// transaction commits its writes while it holds the lock, or commits nothing.
//
// While a guard holds the lock, the call polls outside of the transaction, without a queue entry,
// and takes over a dead holder. A transaction that has already read sees the lock as it was then.
// If it was held, the error has the driver's label TransientTransactionError, and
// Session.WithTransaction tries again. Errors: as Lock; [ErrNoTransactions]; [ErrBadOption] for
// [Shared], [Permits], [Lease].
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
		const text = "%w: a lock of a transaction lasts as long as the transaction; leave Lease out"
		return fmt.Errorf(text, ErrBadOption)
	}
	if err := c.m.heldByCaller(ctx, c.name, c.o); err != nil {
		return err
	}
	ctx, done := c.m.whileOpen(ctx)
	defer done()
	if c.o.bounded && c.o.wait > 0 {
		var stop func()
		ctx, stop = c.m.within(ctx, c.o.wait)
		defer stop()
	}
	pauses := backoff{least: c.m.cfg.Poll, most: c.m.cfg.PollMax}
	var last error // the last reason to wait
	for {
		err := c.enterTransaction(ctx)
		if err == nil {
			return nil
		}
		var again *againError
		switch {
		case ctx.Err() != nil && c.o.parent.Err() == nil: // no label: the driver must not try again
			if !errors.Is(err, ErrHeld) || errors.As(err, &again) {
				err = withoutLabel(err)
			}
			if !endOfContext(err) &&
				(last == nil || errors.Is(err, ErrHeld) || errors.Is(err, ErrOutcomeUnknown)) {
				last = err
			}
			return c.stopped(ctx, context.Cause(ctx), last)
		case !errors.Is(err, ErrHeld), errors.As(err, &again), c.o.bounded && c.o.wait == 0:
			return err
		}
		last = err
		timer := c.m.cfg.Clock.NewTimer(pauses.next(c.m))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return c.stopped(ctx, context.Cause(ctx), last)
		case <-c.m.closed:
			timer.Stop()
			return c.stopped(ctx, ErrClosed, last)
		}
	}
}

// enterTransaction reads the lock outside of the transaction, and acquires a free lock inside of
// the transaction. A read inside would not show a later release, because all reads of a transaction
// return the same snapshot.
func (c *call) enterTransaction(ctx context.Context) error {
	s, err := c.m.begin(c.name, c.o.want, catalog.Try)
	if err != nil {
		return err
	}
	defer c.m.owned.attemptEnded(s.request.TS)
	fail := func(err error) error {
		return fmt.Errorf("distlock: acquire %s in a transaction: %w", quoted(c.name), err)
	}
	view, err := c.m.judge.Read(ctx, c.name)
	if err != nil {
		return fail(err)
	}
	if err := view.Malformed(); err != nil {
		return fail(err)
	}
	if !view.Free() || view.Lock != nil && len(view.Lock.Waiters) > 0 {
		if err := c.evictDead(ctx, view); err != nil {
			return err
		}
	}
	_, err = c.m.locks.EnterTransaction(ctx, s.request)
	switch {
	case errors.Is(err, catalog.ErrNotFree):
		return &againError{fmt.Errorf("%w: the transaction began before the lock was free; run it "+
			"again: %w", c.m.heldError(view), err)}
	case err != nil:
		return fail(err)
	}
	return nil
}

// evictDead evicts dead processes. If a living holder or waiter remains, evictDead returns a
// *HeldError. If a process that is not silent uses the lock with [Permits], the error is a
// *PermitMismatchError instead.
func (c *call) evictDead(ctx context.Context, view watch.View) error {
	_, err := c.m.judge.EvictDead(ctx, view, len(view.Suspects))
	if err != nil && !errors.Is(err, catalog.ErrNoMatch) {
		return acquiring(c.name, err)
	}
	if !slices.ContainsFunc(view.Suspects, func(one watch.Suspect) bool { return !one.Dead() }) {
		return nil
	}
	c.m.judge.WatchRefused(view)
	if other := view.OtherLimit(0); other != nil && !view.OthersSilent(0) {
		return acquiring(c.name, other)
	}
	return c.m.heldError(view)
}

// withoutLabel returns an error without the driver's labels. The result matches the same errors of
// this package as err. If err matches no error of this package and has the label mustRunAgain, the
// result matches [ErrHeld], because another transaction has or had the lock.
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

// An againError reports that a transaction reads an old snapshot and must run again.
type againError struct{ error }

// HasErrorLabel implements mongo.LabeledError.
func (*againError) HasErrorLabel(label string) bool { return label == mustRunAgain }

func (e *againError) Unwrap() error { return e.error }
