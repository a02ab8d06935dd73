package distlock

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// FenceField is the field in which a fenced document keeps the highest fence that wrote it.
const FenceField = "_fence"

// Fenced turns a filter and an update of one document into fenced ones: the filter matches only a
// document that no newer holder has written, and the update leaves this guard's fence in it. Use
// them with UpdateOne or FindOneAndUpdate of any collection; no I/O here. A write that matched
// nothing although the document is there was refused: a newer holder has been at it. With upsert
// a refused write fails with DuplicateKey.
//
// Whoever reads a document, computes, and writes it back must read it by a fenced FindOneAndUpdate
// too: that leaves the fence before the computing begins.
//
// The limit: a stale holder is stopped on documents that a newer holder has already written, and
// not on others. What must be stopped everywhere belongs into [TryGuard.InTransaction].
//
// It is for guards that hold their lock alone. Of [Shared] guards, and of several [Permits], many are
// valid at a time, each with a fence of its own, and a newer one says nothing against an older one:
// no number could tell which of them are stale. TryGuard.InTransaction can.
//
// The update must be one of operators ($set, $inc, ...), not a replacement and not a pipeline.
// Errors: [ErrBadOption] otherwise, when the update writes FenceField itself, and for guards of Shared
// or of more than one permit; a *LostError when the guard is no longer trusted.
func (g *TryGuard) Fenced(filter, update bson.D) (fencedFilter, fencedUpdate bson.D, err error) {
	if err := g.Err(); err != nil {
		return nil, nil, err
	}
	if g.h.mode == catalog.Shared || g.h.limit > 1 {
		return nil, nil, fmt.Errorf("%w: the fence of %s does not tell the stale from the valid, which "+
			"are several at a time with Shared and Permits; use InTransaction", ErrBadOption, quoted(g.Name()))
	}
	if len(update) == 0 {
		return nil, nil, fmt.Errorf("%w: the update is empty", ErrBadOption)
	}
	most := bson.D{{Key: FenceField, Value: g.h.fence}}
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
			if f.Key == FenceField {
				return nil, nil, fmt.Errorf("%w: the update must not write %s itself", ErrBadOption, FenceField)
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
		bson.D{{Key: FenceField, Value: bson.D{{Key: "$exists", Value: false}}}},
		bson.D{{Key: FenceField, Value: bson.D{{Key: "$lte", Value: g.h.fence}}}},
	}}}
	if len(filter) == 0 {
		return notNewer, fencedUpdate, nil
	}
	return bson.D{{Key: "$and", Value: bson.A{filter, notNewer}}}, fencedUpdate, nil
}

// transactionOf is the key under which the context of a transaction names its guard.
type transactionOf struct{ h *holding }

// A transaction is one call of InTransaction.
type transaction struct {
	renewed bool          // the lease, by the run that goes on
	sent    clock.Reading // of the last renewal
}

// transaction returns the one under this guard to which ctx belongs; nil when there is none.
func (h *holding) transaction(ctx context.Context) *transaction {
	t, _ := ctx.Value(transactionOf{h}).(*transaction)
	return t
}

// apart waits until no transaction of the guard is under way, and keeps the next one off until done is called:
// they write the same document. It waits no longer than the server would make a command wait. With the context of
// the transaction itself there is nothing to wait for.
func (h *holding) apart(ctx context.Context) (done func(), err error) {
	if h.transaction(ctx) != nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.m.cfg.CommandTimeout)
	defer cancel()
	select {
	case h.transacting <- struct{}{}:
		return func() { <-h.transacting }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("a transaction of this guard goes on; inside of its work use the context that work "+
			"was given, else wait for its end: %w", context.Cause(ctx))
	}
}

// InTransaction keeps what a holder writes from outliving its lock: it runs work in a MongoDB transaction
// of its own that commits only while the lock is held. [DistributedLock.LockInTransaction] is the other way
// round: a lock that lives as long as a transaction of the caller. The transaction changes the lock
// document, filtered by the lock session: a takeover that was first
// makes the transaction fail with [ErrLockLost] and leaves nothing of it; a takeover that comes
// second waits until the transaction has ended. So no other holder ever sees half of this work, and
// a stale holder's work never appears.
//
// Everything work does with the context it is given belongs to the transaction, if it goes through
// the same client: Config.Client, or mongo.SessionFromContext(ctx).Client(). work may run several
// times: it must have no other effects. All runs together, and the wait for them, are bounded by ctx, by the
// guard and by the time for which a lock is trusted (Takeover - Margin), whichever ends first, not by the
// driver's 120 s. Transactions of one guard, and of those that [TryGuard.Reenter] made of it, run one after
// the other; the later one waits, in vain if work itself calls it with another context than its own. An error
// of a command that work keeps back has ended the transaction all the same: return it.
//
// The first run writes the lock document last, so that nobody waits for work. Whoever touches the lock
// meanwhile, as a contender that comes into the line or another reader, makes the run conflict. The next one
// writes the lock document first, and who wants to write it waits for the end of that run, or gives up by its
// own limit. So however many come and go, work runs twice at most for that; once more for each election
// and each conflict over documents of its own. Keep it short: a takeover waits as well. One of a process
// that was stopped in the middle waits until the server ends the transaction, after 60 s
// (transactionLifetimeLimitSeconds).
//
// [TryGuard.Renew] and [TryGuard.PutFirst] with the context that work is given are part of the transaction: they
// come with the commit, a renewal with the time of its send. Until then a lease is as long as it was: work must
// end within it. With another context they wait until the transaction has ended, in vain if work itself calls
// them, for at most Config.CommandTimeout. Release ends the guard, so that nothing is committed, and may wait in
// vain as well: release when InTransaction has returned.
//
// Errors: work's, as they are, joined with why the guard is over when it is; a *LostError, and then the guard
// is lost; [ErrNoTransactions] on a
// standalone, on the embedded server, and in database config of a replica set, before work is
// called; [ErrBadOption] when work calls InTransaction of the same guard with its context;
// [ErrOutcomeUnknown] when the server did not tell whether it was committed.
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
		return fmt.Errorf("%w: InTransaction of %s was called inside of itself: its transactions run one "+
			"after the other; use the context of the outer one", ErrBadOption, quoted(g.Name()))
	}
	hold := g.h.m.cfg.Takeover - g.h.m.cfg.Margin
	ctx, stopTimer := context.WithTimeout(ctx, hold)
	defer stopTimer()
	select { // two of one guard would only conflict with each other
	case g.h.transacting <- struct{}{}:
		defer func() { <-g.h.transacting }()
	case <-ctx.Done():
		return fmt.Errorf("distlock: transaction under %s: another one of this guard, or a renewal of its lease, "+
			"goes on: %w", quoted(g.Name()), context.Cause(ctx))
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
	err := g.h.m.locks.Transact(ctx, g.h.session, func(ctx context.Context) error {
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
