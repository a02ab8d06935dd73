package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/clock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
)

// A Row is a claimed document. It is safe for concurrent use.
type Row[T any] struct {
	// Doc is the decoded document at the time of the claim.
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

// LastError returns the text of the last failure, or "" without a failure.
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
	return cmp.Or(r.c.guard.Err(), lost) // without mu: the guard may call the Observer
}

// DoneWith calls the given function in a transaction that also marks the row done. Its writes and
// the mark take effect together, or none does. The function may run several times, and its writes
// must use its context. If DoneWith fails and the handler returns nil, the attempt fails with that
// error. Errors: the function's; ErrFinished if the handler has returned, or if another call runs
// or has succeeded; *LostError; ErrNoTransactions.
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
	case c.returned || c.done || c.stopWork != nil:
		c.mu.Unlock()
		return ErrFinished
	case c.lost != nil:
		defer c.mu.Unlock()
		return c.lost
	}
	c.stopWork = stop
	c.working.Add(1)
	c.mu.Unlock()
	err := errors.New("claim: work of DoneWith ended its goroutine, or panicked")
	defer func() {
		c.mu.Lock()
		c.done, c.doneErr, c.stopWork = err == nil, err, nil
		c.mu.Unlock()
		c.working.Done()
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
		known = false // an earlier run may have been committed
		if row, bad := e.reread(c.row.ID); bad == nil {
			known, err = true, lost(c, row)
			if row != nil && row.Mark.Batch == c.row.Mark.Batch && row.Mark.State == rows.Done {
				err = nil
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
	err = fmt.Errorf("claim: row %s: %w", rows.Text(c.row.ID), err) // for the deferred function, too
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

// A wish is an error by which a handler chooses how its claim ends.
type wish struct {
	err   error
	dead  bool
	again *time.Duration
	free  bool // the attempt does not count
}

func (w *wish) Error() string { return w.err.Error() }
func (w *wish) Unwrap() error { return w.err }

// Snooze is like RetryAfter, but the attempt does not count. If the pause is not between zero and
// ten years, the attempt fails.
func Snooze(pause time.Duration) error {
	if bad := badPause("Snooze", pause); bad != nil {
		return bad
	}
	return &wish{err: fmt.Errorf("snoozed for %v", pause), again: &pause, free: true}
}

// Discard returns an error with which a handler makes its row dead.
func Discard(err error) error {
	return &wish{err: cmp.Or(err, errors.New("discarded without a reason")), dead: true}
}

// RetryAfter returns an error with which a handler sets the pause before the retry. A pause below
// zero or above ten years has no effect.
func RetryAfter(pause time.Duration, err error) error {
	err = cmp.Or(err, errors.New("failed without a reason"))
	if bad := badPause("RetryAfter", pause); bad != nil {
		return fmt.Errorf("%w (%w)", err, bad)
	}
	return &wish{err: err, again: &pause}
}

func badPause(function string, pause time.Duration) error {
	if pause >= 0 && pause <= mostTime {
		return nil
	}
	return fmt.Errorf("claim: %s(%v): the pause must be zero to ten years", function, pause)
}

func wished(err error) wish {
	if w, is := errors.AsType[*wish](err); is {
		return *w
	}
	return wish{}
}

// failure returns the end of a claim whose handler returned an error, and the pause before a retry.
func (e *engine) failure(c *claimed, cause error) (end rows.Ending, pause time.Duration) {
	w, attempts := wished(cause), c.row.Mark.Attempts
	end, pause = c.row.Failed(e.wall(), e.m.Process(), cause.Error()), e.backoff(attempts)
	if w.again != nil {
		pause = *w.again
	}
	if w.free {
		end = c.row.Uncounted(rows.Retrying)
	} else if w.dead || attempts >= int64(e.cfg.MaxAttempts) {
		end.To = rows.Dead
	}
	return end, pause
}

func (e *engine) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.cfg.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	cause := fmt.Errorf("%w of %v: %w", ErrTimeout, e.cfg.Timeout, context.DeadlineExceeded)
	return context.WithTimeoutCause(ctx, e.cfg.Timeout, cause)
}

// record records the end of a claim. It repeats the command until the outcome is known or the slot
// is lost. If the server refuses the command, record continues in the background, where owed is
// true, until the queue closes.
func (e *engine) record(c *claimed, end rows.Ending, pause time.Duration, owed bool) {
	stop, logged, short := c.guard.Context().Done(), false, false
	if owed {
		stop = e.life.Done() // Close tries to give the row back
	}
	for {
		err := e.finish(c, end, pause)
		if err == nil {
			break
		}
		if errors.Is(err, ErrLost) || c.guard.Err() != nil {
			e.report(metrics.Attempts, 1, "lost")
			e.log.Warn().Err(err).Str("row", rows.Text(c.row.ID)).
				Msg("a row was lost before its claim ended")
			break
		}
		rest := max(e.pace.now(), leastPause)
		switch refused := isRefused(err); {
		case refused && !short && len(end.Failures) > 0: // the row may have no room for the texts
			short, end.Error, end.Failures = true, rows.Cut(end.Error, 100), c.row.Mark.Failures
			continue
		case refused && !owed && e.refused() < mostAsides: // the worker can handle other rows
			e.owed.Add(1)
			e.background.Go(func() { e.record(c, end, pause, true); e.owed.Add(-1) })
			return
		case refused:
			rest = refusedPause
		}
		if !logged {
			logged = true
			e.log.Warn().Err(err).Str("row", rows.Text(c.row.ID)).Msg("ending a claim failed")
		}
		if !clock.Sleep(e.clock, jittered(e.clock, rest), stop) && owed {
			break
		}
	}
	e.finished(c)
	if end.To == rows.Ready {
		signal(e.woken)
	}
}

// finish sends the end of a claim. If the command matches no row, finish reads the row. If the row
// shows this end, finish returns nil. If the row shows another end, finish returns a *LostError.
func (e *engine) finish(c *claimed, end rows.Ending, pause time.Duration) error {
	c.mu.Lock()
	known := errors.Is(c.lost, ErrCancelled)
	c.mu.Unlock()
	end.At = e.wall()
	if known {
		end = c.row.Cancelled(end.At)
	}
	if end.To == rows.Retrying {
		now, err := e.serverNow()
		if err != nil {
			return err
		}
		end.NotBefore = notBefore(now, pause)
	}
	n, err := e.sendEnds(end)
	tried := c.tried.Swap(true)
	if err != nil {
		return err
	}
	if n == 0 {
		row, err := e.reread(c.row.ID)
		// A rescuer, which keeps the batch, may have ended the claim.
		other := row != nil && row.Mark.State != rows.Done &&
			(end.To == rows.Done || end.To == rows.Dead && row.Mark.Error != end.Error)
		switch {
		case err != nil:
			return err
		case row != nil && c.has(*row) && row.Mark.Cancelled && !known:
			c.lose(lost(c, row))
			return e.finish(c, end, pause)
		case row != nil && c.has(*row):
			return errors.New("the row still has this claim but does not match")
		case !tried || row == nil || row.Mark.Batch != c.row.Mark.Batch || other:
			return lost(c, row)
		case row.Mark.State == rows.Done: // by an earlier try, or by DoneWith
			end = row.End(rows.Done)
		}
	}
	e.ended(c, end)
	return nil
}

func (e *engine) ended(c *claimed, end rows.Ending) {
	outcome := string(end.To)
	switch {
	case end.To == rows.Ready || end.To == rows.Retrying && end.Error == "":
		outcome = "given_back"
	case end.To == rows.Dead:
		row := c.row
		row.Mark.State, row.Mark.DeadAt = rows.Dead, end.At
		row.Mark.Error, row.Mark.Failures = end.Error, end.Failures
		e.log.Error().Str("row", rows.Text(row.ID)).Str("error", end.Error).
			Int64("attempts", end.Attempts).Msg("row is dead")
		e.hook("OnDead", e.cfg.OnDead, row)
	}
	if end.To == rows.Retrying {
		e.wakeAt(end.NotBefore)
	}
	e.report(metrics.Attempts, 1, outcome)
}

func (e *engine) sendEnds(ends ...rows.Ending) (int, error) {
	return sent(e, func(ctx context.Context) (int, error) { return e.store.End(ctx, ends...) })
}

// reread returns the row with the given _id, or nil if the row is gone.
func (e *engine) reread(id bson.RawValue) (*rows.Row, error) {
	return sent(e, func(ctx context.Context) (*rows.Row, error) { return e.store.Read(ctx, id) })
}
