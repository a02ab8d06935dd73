package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mongodlm/internal/clock"
)

// Serve is Run with an orderly end for a program. After ctx ends, for example by SIGTERM, Serve:
//   - claims no more rows, and waits at most grace for the handlers
//   - ends the contexts of the remaining handlers, and waits at most 10 s for them
//   - closes the queue, in the background if a handler still has not returned
//
// If ctx has ended before the call, or if Run fails, Serve only closes the queue. Serve returns the
// errors of Run and Close. After ErrRunning the queue stays open.
func (q *Queue[T]) Serve(ctx context.Context, grace time.Duration,
	handle func(ctx context.Context, row *Row[T]) error) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e := q.e
	r, err := q.begin(handle)
	if err != nil {
		return err
	}
	hard, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	result := make(chan error, 1)
	go func() { result <- r.wait(ctx, hard) }()
	select {
	case err = <-result:
	case <-ctx.Done():
		clock.Sleep(e.clock, max(grace, 0), r.ended)
		stop(fmt.Errorf("claim: the grace of %v ended: %w", grace, context.Cause(ctx)))
		clock.Sleep(e.clock, closeLimit, r.ended)
	}
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer done()
	closed := q.Close(closing)
	select {
	case err = <-result:
	default:
	}
	return errors.Join(err, closed)
}

// closeLimit is the longest wait for handlers whose contexts have ended, for Close, and for hooks.
const closeLimit = 10 * time.Second

// Close ends the contexts of the handlers, waits until the end of each claim is recorded, and
// releases the slot. It also waits for running hooks, whose contexts end after 10 s. If ctx ends
// first, Close returns an error and continues in the background. A handler that calls Close waits
// for itself.
func (q *Queue[T]) Close(ctx context.Context) error { return q.e.close(ctx) }

func (e *engine) close(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	running := e.running
	if e.closing == nil {
		e.closing = make(chan struct{})
		go e.finishClose(running)
	}
	e.mu.Unlock()
	e.end()
	select {
	case <-e.closing:
		return nil
	case <-ctx.Done():
	}
	what := "rows are being given back"
	if running != nil && !clock.Over(running.ended) {
		what = "handlers run"
	}
	return fmt.Errorf("claim: %s; the queue closes in the background: %w", what, context.Cause(ctx))
}

// finishClose does the work of Close in the background.
func (e *engine) finishClose(running *run) {
	defer close(e.closing)
	if running != nil {
		<-running.ended
	}
	e.stats.stop()
	e.background.Wait()
	for _, s := range e.sessions() {
		for s.err() == nil { // the rows of a lost slot are rescued
			err := e.tendClaims(s)
			if err == nil {
				break
			}
			e.log.Warn().Err(err).Msg("giving rows back failed")
			clock.Sleep(e.clock, max(e.pace.now(), leastPause), s.guard.Context().Done())
		}
		e.release(s)
	}
	limit, done := context.WithTimeout(e.base, closeLimit) // of the hooks' contexts
	defer done()
	context.AfterFunc(limit, e.hooks.end)
	e.hooks.calls.Wait()
}
