package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// A Failure is an attempt at a row that did not end well.
type Failure struct {
	Attempt int       // 1 for the first
	At      time.Time // when it was recorded, by the clock of the collection's server
	Process string    // that worked on it; empty when another one had to find out
	Error   string    // about 700 bytes of it
}

// Errors returns the failures of this row before this attempt, the last ten, the oldest first.
// Those whose process died, or whose lease ended, are among them where they counted as attempts,
// and as far as there is room: a rescue changes many rows at once and drops none. A row that was
// tried anew by a hand counts from 1 again.
func (r *Row[T]) Errors() []Failure { return failuresOf(r.c.row.Mark) }

// failuresOf numbers the failures that a rescue has recorded after those before them.
func failuresOf(m rows.Mark) []Failure {
	list := make([]Failure, len(m.Failures))
	last := int64(0)
	for i, f := range m.Failures {
		if f.Attempt == 0 {
			f.Attempt = last + 1
		}
		last = f.Attempt
		list[i] = Failure{Attempt: int(f.Attempt), At: f.At, Process: f.Process, Error: f.Error}
	}
	return list
}

// failed adds this failure to those that the row has: the process knows them: no command.
func (e *engine) failed(c *claimed, end rows.Ending) rows.Ending {
	m := c.row.Mark
	end.Failures = rows.Failed(m.Failures, rows.Failure{Attempt: m.Attempts, At: e.wall(),
		Process: e.m.Process(), Error: end.Error})
	return end
}

// wall is the time of day as a document keeps it: the server's, by its last reply. It is known
// before any row is claimed; in its place stands the process's own.
func (e *engine) wall() time.Time {
	now, _ := e.server.last()
	if now.IsZero() {
		now = e.clock.Now().Wall
	}
	return now.Truncate(time.Millisecond)
}

// mostError bounds the text of an error in a row.
const mostError = 2000

// printable bounds a text that goes into a document.
func printable(text string) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) > mostError {
		text = strings.ToValidUTF8(text[:mostError], "") + "..."
	}
	return text
}
