package claim

import (
	"context"
	"fmt"
)

// Stop ends Run softly, as a program should that is told to end: no more rows are claimed, those
// that wait for a worker are given back at once, and handlers that have begun may end as long as
// ctx lasts. Then their contexts end, too. Run returns nil when all have returned, as after its own
// context has ended, which is the hard stop. A Run that comes later returns at once; Claim is not
// concerned. Do not wait for Stop in a handler.
//
// It returns nil when Run has ended before ctx has, and else an error that matches the cause of
// ctx: then Run may still wait for handlers that do not mind their contexts.
func (q *Queue[T]) Stop(ctx context.Context) error { return q.e.stop(ctx) }

func (e *engine) stop(ctx context.Context) error {
	if err := usable(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	e.stopped = true
	r := e.running
	e.mu.Unlock()
	if r == nil {
		return nil
	}
	r.soft()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-r.ended:
		return nil
	default:
	}
	err := fmt.Errorf("claim: handlers still ran when Stop's context ended: %w", context.Cause(ctx))
	r.stop(err)
	return err
}
