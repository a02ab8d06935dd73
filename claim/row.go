package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// A Row is a document that this process has claimed for a handler. It is safe for concurrent use.
type Row[T any] struct {
	// Doc is the document at the time of the claim.
	Doc T
	e   *engine
	c   *claimed
}

// ID returns the document's _id.
func (r *Row[T]) ID() bson.RawValue { return r.c.row.ID }

// Raw returns the whole document at the time of the claim.
func (r *Row[T]) Raw() bson.Raw { return r.c.row.Doc }

// Fence returns a number that increases with every claim of this row.
func (r *Row[T]) Fence() int64 { return r.c.row.Mark.Fence }

// Attempt returns the number of this attempt, 1 for the first.
func (r *Row[T]) Attempt() int { return int(r.c.row.Mark.Attempts) }

// LastError returns the text of the last failure, or an empty string without a failure.
func (r *Row[T]) LastError() string { return r.c.row.Mark.Error }

// Errors returns the last ten failures before this attempt, the oldest first.
func (r *Row[T]) Errors() []Failure { return failuresOf(r.c.row.Mark) }

// Err returns nil while the handler may work on the row. Afterwards it returns ErrFinished, a
// *LostError, or the error of the process's slot, such as distlock.ErrLockLost. It does no I/O.
func (r *Row[T]) Err() error {
	r.c.mu.Lock()
	over, lost := r.c.returned || r.c.done, r.c.lost
	r.c.mu.Unlock()
	if over {
		return ErrFinished
	}
	return cmp.Or(r.c.s.guard.Err(), lost) // without mu: the guard may call the Observer
}

// DoneWith calls the given function in a transaction that also marks the row done. Either the
// writes of the function and the mark take effect together, or none of them does. The function must
// pass its own context to its writes. DoneWith may call the function several times. If DoneWith
// fails and the handler returns nil, the attempt fails with the error of DoneWith. DoneWith returns
// ErrFinished if the handler has returned, or if another call of DoneWith runs or has succeeded.
// Other errors: *LostError, ErrNoTransactions, and the error of the function.
func (r *Row[T]) DoneWith(ctx context.Context, work func(ctx context.Context) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	if work == nil {
		return &ConfigError{Problems: []string{"the function of DoneWith is nil"}}
	}
	e, c := r.e, r.c
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c.mu.Lock()
	switch {
	case c.returned || c.done || c.working != nil:
		c.mu.Unlock()
		return ErrFinished
	case c.lost != nil:
		defer c.mu.Unlock()
		return c.lost
	}
	var working sync.WaitGroup
	working.Add(1)
	c.working, c.stopWork = &working, stop
	c.mu.Unlock()
	err := errors.New("claim: work of DoneWith ended its goroutine, or panicked")
	defer func() {
		c.mu.Lock()
		c.done, c.doneErr, c.working = err == nil, err, nil
		c.mu.Unlock()
		working.Done()
	}()
	end := c.row.End(rows.Done)
	end.At = e.wall()
	gone, known := false, true // gone: the claim has ended; known: the last run was not committed
	err = e.store.Transact(ctx, func(ctx context.Context) error {
		known = true
		n, err := e.store.End(ctx, end) // before work, so that concurrent writes to the row conflict
		if gone = err == nil && n == 0; gone {
			return ErrLost
		}
		if err == nil {
			err = work(ctx)
			known = err != nil
		}
		return err
	})
	if gone {
		row, bad := e.reread(c.row.ID, false)
		if known = false; bad == nil { // an earlier run may have been committed
			if known = true; row != nil && row.Mark.Batch == c.row.Mark.Batch && row.Mark.State == rows.Done {
				err = nil
			} else {
				err = lost(c, row)
			}
		}
	}
	if err == nil {
		e.ended(c, end)
		return nil
	}
	if !known {
		c.tried.Store(true)
	}
	err = fmt.Errorf("claim: row %s: %w", rows.Text(c.row.ID), err)
	return err
}

// A Failure is a failed attempt at a row.
type Failure struct {
	Attempt int       // 1 for the first
	At      time.Time // by the clock of the collection's server
	Process string    // empty if the process died
	Error   string    // at most about 700 bytes
}

func failuresOf(m rows.Mark) (list []Failure) {
	for _, f := range m.Failures {
		list = append(list, Failure(f))
	}
	return list
}
