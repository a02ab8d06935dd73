package distlock

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// fenceField is the field in which a fenced document keeps the highest fence that wrote it.
const fenceField = "_fence"

// Fenced makes a filter and an update of one document fenced, for UpdateOne or FindOneAndUpdate of
// any collection: the filter matches only a document that no newer holder has written, and the
// update leaves this guard's fence in its field _fence. If nothing matches although the document
// exists, a newer holder has written it; an upsert then fails with DuplicateKey. To compute from a
// document, read it by a fenced FindOneAndUpdate. No I/O.
//
// A stale holder is stopped on documents that a newer holder has written, and on no others:
// [TryGuard.InTransaction] stops it everywhere.
//
// Errors: [ErrBadOption] for a replacement, a pipeline or an update of _fence, and for guards of
// [Shared] or of more than one permit; *LostError of a guard that is lost.
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

// inWork reports whether the caller is the work of a transaction of this guard, whatever context it
// uses: it would wait for itself.
func (h *holding) inWork() bool {
	at := h.working.Load()
	return at != 0 && at == goroutine()
}

// apart waits until no transaction of the guard is under way, and keeps the next one off until done
// is called: they write the same document. It waits no longer than the server would make a command
// wait. With the context of the transaction itself there is nothing to wait for.
func (h *holding) apart(ctx context.Context) (done func(), err error) {
	if h.transaction(ctx) != nil {
		return func() {}, nil
	}
	if h.inWork() {
		return nil, fmt.Errorf("%w: it was called inside of a transaction of this guard: use the context that "+
			"work was given", ErrBadOption)
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

// InTransaction runs work in a MongoDB transaction that commits only while the lock is held: it
// changes the lock document, filtered by the lock session. A takeover that comes first makes it
// fail with [ErrLockLost] and leaves nothing of it; one that comes second waits for its end.
//
// work passes its context to every operation, of the same client: Config.Client, or
// mongo.SessionFromContext(ctx).Client(). It returns the error of an operation that fails. It may
// run several times and must have no other effects: twice at most because others touch the lock
// document, and once more for each election and each conflict over its own documents. All runs
// together are bounded by ctx, by the guard, and by Takeover - Margin. Keep work short, since a
// takeover waits for it, up to 60 s if the process stops (transactionLifetimeLimitSeconds).
//
// Transactions of one guard run one after the other. [TryGuard.Renew] with work's context counts
// from when it was sent, if the transaction commits; with another context work itself is refused,
// others wait for its end, up to Config.CommandTimeout. After a release nothing is committed.
//
// Errors: work's, joined with why the guard is over when it is; *LostError, and then the guard is
// lost; [ErrNoTransactions], before work is called; [ErrBadOption] when work calls it again;
// [ErrOutcomeUnknown] of the commit.
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
	if g.h.transaction(ctx) != nil || g.h.inWork() {
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
		g.h.working.Store(goroutine())
		defer g.h.working.Store(0)
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
