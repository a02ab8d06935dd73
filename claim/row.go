package claim

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// A Row is one document that this process has claimed. One of Done, DoneWith, Fail and GiveBack
// ends the claim; Run does so by what its handler returns, if the handler has not. Safe for
// concurrent use.
//
// Each of them returns a *LostError when the row is no longer claimed by this worker, and changes
// nothing then; ErrFinished when the claim was ended before; any other error when the outcome is in
// doubt: then it may be called again. Each costs one command, and one more when the row is lost.
type Row[T any] struct {
	// Doc is the document as it was claimed.
	Doc T
	e   *engine
	c   *claimed
}

// ID returns the document's _id.
func (r *Row[T]) ID() bson.RawValue { return r.c.row.ID }

// Raw returns the whole document as it was claimed.
func (r *Row[T]) Raw() bson.Raw { return r.c.row.Doc }

// Fence returns a number that rises with every claim of this row, as long as nobody removes the
// field. What the work changes outside of the database should refuse a smaller one than it has
// seen.
func (r *Row[T]) Fence() int64 { return r.c.row.Mark.Fence }

// Attempt returns which attempt this is, 1 for the first.
func (r *Row[T]) Attempt() int { return int(r.c.row.Mark.Attempts) }

// LastError returns the text of the last failure, empty when there was none.
func (r *Row[T]) LastError() string { return r.c.row.Mark.Error }

// Err returns nil while this process may believe that the row is its own: until the deadline of its
// slot's lock, see [distlock.TryGuard.Err]. No I/O.
func (r *Row[T]) Err() error {
	if r.c.stage.Load() == over {
		return ErrFinished
	}
	if err := r.c.s.err(); err != nil {
		return err
	}
	if err := r.c.lostMark(); err != nil {
		return err
	}
	return r.e.leaseErr(r.c)
}

// Renew begins the row's lease anew, see [Config.Lease]. Without a lease it only asks whether the
// row is still claimed by this worker. A lease that is over is not renewed. One command.
func (r *Row[T]) Renew(ctx context.Context) error { return r.e.renew(ctx, r.c) }

// Done marks the row done, or removes the document when Config.DeleteDone says so.
func (r *Row[T]) Done(ctx context.Context) error {
	return r.e.endOne(ctx, outcome{r.c, rows.Ending{To: rows.Done}})
}

// Fail records a failure: the row is retried after a pause, or is dead when this was its last
// attempt. The text of cause is kept, at most 2,000 bytes of it. [Snooze], [Discard] and
// [RetryAfter] mean here what they mean when a handler returns them.
func (r *Row[T]) Fail(ctx context.Context, cause error) error {
	return r.e.endOne(ctx, r.e.failure(r.c, cause))
}

// GiveBack leaves the row to any worker, after the pause of a first retry: others have their turn.
// The attempt does not count.
func (r *Row[T]) GiveBack(ctx context.Context) error {
	end := rows.Ending{To: rows.Retrying, Uncounted: true, Pause: r.e.backoff(1)}
	return r.e.endOne(ctx, outcome{r.c, end})
}

// DoneWith marks the row done in one transaction with what work does with the context that it is
// given: both happen or neither does. So a handler adds rows, by Queue.Add, or writes its results,
// exactly once. work may run several times; what it does through other clients does not belong to
// the transaction. Meanwhile Renew of the row returns ErrFinished, and work must not cancel the
// row: that waits for the transaction.
//
// Errors: as above, and nothing of work has happened then; work's; ErrNoTransactions where there
// are none, on a standalone and on the embedded server, before work is called.
func (r *Row[T]) DoneWith(ctx context.Context, work func(ctx context.Context) error) error {
	return r.e.doneWith(ctx, r.c, work)
}

// endOne ends one claim.
func (e *engine) endOne(ctx context.Context, o outcome) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if !o.c.stage.CompareAndSwap(open, ending) {
		return ErrFinished
	}
	defer o.c.reopen()
	err := e.finish(ctx, []outcome{o})[0]
	if err == nil && o.end.To == rows.Ready {
		signal(e.woken)
	}
	return err
}

func (e *engine) doneWith(ctx context.Context, c *claimed,
	work func(ctx context.Context) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if work == nil {
		return fmt.Errorf("claim: DoneWith: the function is nil")
	}
	if errors.Is(c.lostMark(), ErrCancelled) {
		return e.endOne(ctx, outcome{c, rows.Ending{To: rows.Done}}) // which makes it dead, and says so
	}
	if !c.stage.CompareAndSwap(open, ending) {
		return ErrFinished
	}
	defer c.reopen()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(c.s.guard.Context(), func() { stop(context.Cause(c.s.guard.Context())) })()
	end := rows.Ending{ID: c.row.ID, Session: c.row.Mark.Session, Batch: c.row.Mark.Batch,
		To: rows.Done, Delete: e.cfg.DeleteDone, At: e.wall()}
	gone, worked := false, false // in the latest run
	err := e.store.Transact(ctx, func(ctx context.Context) error {
		worked = false
		n, err := e.store.FinishIn(ctx, end) // first, so that another's write to the row is a conflict
		if gone = err == nil && n == 0; gone {
			return ErrLost
		}
		if err != nil {
			return err
		}
		err = work(ctx)
		worked = err == nil
		return err
	})
	switch {
	case err == nil:
		e.stats.ended(end, nil)
		e.finished(c)
		signal(e.woken)
		return nil
	case gone:
		found, readErr := e.store.Current(ctx, []bson.RawValue{c.row.ID})
		if readErr != nil { // an earlier run of the transaction may have been committed
			err = readErr
			break
		}
		e.finished(c)
		ends, errs := []outcome{{c, end}}, []error{nil}
		judge([]rows.Ending{end}, ends, found, 0, errs) // an earlier run may have been committed
		e.unmarked(ends, found, errs)
		e.stats.ended(end, errs[0])
		return errs[0]
	}
	if worked { // whether it was committed may be unknown; a run before the latest one was not
		c.tries++
	}
	return fmt.Errorf("claim: row %s: %w", rows.Text(c.row.ID), err)
}
