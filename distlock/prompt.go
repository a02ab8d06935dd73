package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// grace is how long a store may take to say what became of a command whose context has ended. It
// knows more than we do: whether the command was sent at all.
const grace = 10 * time.Millisecond

// prompt makes a store whose commands end with their contexts, whatever the store under it does,
// and counts them: a command that does not notice is left to itself, and its outcome is unknown.
func prompt(store catalog.Catalog, by clock.Clock, sent *sentCommands) catalog.Catalog {
	return catalog.Intercept(store, func(ctx context.Context, c catalog.Call, do func(context.Context) error) error {
		kind, counts := kindOf(c)
		if counts && c.Row == 0 && (ctx == nil || ctx.Err() == nil) {
			sent.add(kind)
		}
		if ctx == nil || ctx.Done() == nil || asPromptAsTheStore(ctx, c) {
			return do(ctx)
		}
		return inTime(ctx, by, commandKinds[kind].writes, do)
	})
}

// asPromptAsTheStore reports whether a call is for the background alone, or is a part of a
// transaction: a session of the driver is for one command at a time.
func asPromptAsTheStore(ctx context.Context, c catalog.Call) bool {
	switch c.Op {
	case catalog.OpGrantStream, catalog.OpNextGrants, catalog.OpEnterTransaction, catalog.OpTransact:
		return true
	case catalog.OpApply:
		s, ok := transition.Under(c.Transition)
		return ok && catalog.TransactionUnder(ctx, s) != nil
	default:
		return false
	}
}

// inTime carries out a command as long as ctx lasts. A panic in it is the caller's.
func inTime(ctx context.Context, by clock.Clock, writes bool, do func(context.Context) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("not sent: %w", endOf(ctx))
	}
	type result struct {
		err    error
		panics any
	}
	done := make(chan result, 1)
	go func() { // ends with the command
		var r result
		defer func() {
			r.panics = recover()
			done <- r
		}()
		r.err = do(ctx)
	}()
	r, ok := await(ctx, by, done)
	switch {
	case r.panics != nil:
		panic(r.panics)
	case ok:
		return r.err
	}
	outcome := catalog.ErrUnavailable
	if writes {
		outcome = catalog.ErrUnknownOutcome
	}
	return fmt.Errorf("%w: the store did not answer in time: %w", outcome, endOf(ctx))
}

// endOf says why a context has ended: that we ended it, which is no cancellation of the caller's,
// or what it says itself.
func endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errTimeUp) || errors.Is(cause, ErrClosed) {
		return cause
	}
	return ctx.Err()
}

// await receives from a channel as long as ctx lasts, and a grace longer.
func await[T any](ctx context.Context, by clock.Clock, c <-chan T) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-ctx.Done():
	}
	timer := by.NewTimer(grace)
	defer timer.Stop()
	select {
	case v = <-c:
		return v, true
	case <-timer.C():
		return v, false
	}
}
