package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mongodlm/internal/rows"
)

// ErrTimeout is matched by the cause with which a handler's context ends after [Config.Timeout],
// as context.DeadlineExceeded is.
var ErrTimeout = errors.New("claim: the handler had not returned after Config.Timeout")

// A wish is an error by which a handler says what becomes of its row.
type wish struct {
	err   error
	dead  bool
	again *time.Duration
	free  bool // the attempt does not count
}

func (w *wish) Error() string { return w.err.Error() }
func (w *wish) Unwrap() error { return w.err }

// Snooze is an error with which a handler has its row again after a pause, by any worker: nothing
// failed, the attempt does not count, and [Row.LastError] stays as it is. It is for work whose time
// has not come. A negative pause, or one over ten years, is a failure that says so.
func Snooze(pause time.Duration) error {
	if bad := badPause("Snooze", pause); bad != nil {
		return bad
	}
	return &wish{err: fmt.Errorf("snoozed for %v", pause), again: &pause, free: true}
}

// Discard is an error with which a handler says that its row can never be done: it is dead at once,
// whatever Config.MaxAttempts says.
func Discard(err error) error {
	if err == nil {
		err = errors.New("discarded without a reason")
	}
	return &wish{err: err, dead: true}
}

// RetryAfter is an error with which a handler has failed and says after which pause the row is
// tried again, in place of Config.Backoff. The attempt counts. A negative pause, or one over ten
// years, becomes the usual one, and the row's error says so.
func RetryAfter(pause time.Duration, err error) error {
	if err == nil {
		err = errors.New(noReason)
	}
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

const noReason = "failed without a reason"

// wished is what an error, or one that it wraps, wishes; nothing special for others.
func wished(err error) wish {
	var w *wish
	if errors.As(err, &w) {
		return *w
	}
	return wish{}
}

// failure is the outcome of a row whose handler returned an error.
func (e *engine) failure(c *claimed, cause error) outcome {
	if cause == nil {
		cause = errors.New(noReason)
	}
	text, w, attempts := printable(cause.Error()), wished(cause), c.row.Mark.Attempts
	pause := e.backoff(attempts)
	if w.again != nil {
		pause = *w.again
	}
	switch {
	case w.free:
		return outcome{c, rows.Ending{To: rows.Retrying, Uncounted: true, Pause: pause}}
	case !w.dead && attempts < int64(e.cfg.MaxAttempts):
		return outcome{c, e.failed(c, rows.Ending{To: rows.Retrying, Error: text, Pause: pause})}
	}
	e.log.Error().Str("row", rows.Text(c.row.ID)).Str("error", text).Int64("attempts", attempts).
		Msg("row is dead")
	return outcome{c, e.failed(c, rows.Ending{To: rows.Dead, Error: text})}
}

// timed ends a handler's context after Config.Timeout.
func (e *engine) timed(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.cfg.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	cause := fmt.Errorf("%w of %v: %w", ErrTimeout, e.cfg.Timeout, context.DeadlineExceeded)
	return context.WithTimeoutCause(ctx, e.cfg.Timeout, cause)
}

// timedOut is the error of a handler whose context has ended by timed, nil otherwise.
func timedOut(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case !errors.Is(cause, ErrTimeout):
		return nil
	case errors.Is(err, ErrTimeout):
		return err
	default:
		return fmt.Errorf("%w: %w", cause, err)
	}
}
