package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// The errors of this package:
//   - ErrRunning: Run or Serve was called while another call runs.
//   - ErrClosed: Run or Serve was called after Close of the queue.
//   - ErrFinished: a method of Row was called after the end of the claim.
//   - ErrNoTransactions: DoneWith was called, and the server has no transactions.
//   - ErrOver: Cancel was called for a row that is dead, done or gone.
//   - ErrCancelled: the row was cancelled. The cause of its handler's context is a *LostError that
//     matches ErrCancelled.
//   - ErrNoSlot: every slot that the process tried is held. This error is only logged.
var (
	ErrLost           = errors.New("claim: row is lost")
	ErrFinished       = errors.New("claim: row is finished")
	ErrRunning        = errors.New("claim: already running")
	ErrConfig         = errors.New("claim: bad configuration")
	ErrNoSlot         = errors.New("claim: no slot is free")
	ErrClosed         = errors.New("claim: queue is closed")
	ErrOver           = errors.New("claim: row is over")
	ErrCancelled      = errors.New("claim: row was cancelled")
	ErrNoTransactions = distlock.ErrNoTransactions
	// ErrTimeout matches the cause of a handler's context that ended after Config.Timeout.
	ErrTimeout = errors.New("claim: the handler had not returned after Config.Timeout")
)

// A ConfigError lists every contradiction in a Config. It matches ErrConfig. Calls with a nil
// context or function return a *ConfigError, too.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "claim: bad configuration: " + strings.Join(e.Problems, "; ")
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// problems lists what is wrong with the arguments of a call.
type problems []string

// add adds a problem if wrong is true.
func (p *problems) add(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// err returns a *ConfigError, or nil without a problem.
func (p problems) err() error {
	if p == nil {
		return nil
	}
	return &ConfigError{Problems: p}
}

// badQuery returns an error that matches ErrConfig if the server refuses the query, and otherwise
// err.
func badQuery(err error) error {
	if is[*rows.QueryError](err) {
		return fmt.Errorf("%w: Filter: %w", ErrConfig, err)
	}
	return err
}

// Calling is[E](err) reports whether err wraps an error of type E.
func is[E error](err error) bool { _, is := errors.AsType[E](err); return is }

func isClosed(err error) bool { return errors.Is(err, distlock.ErrClosed) || errors.Is(err, ErrClosed) }

func isDenied(err error) bool { return is[*distlock.PrivilegeError](err) }

func isRefused(err error) bool { return is[*rows.RefusedError](err) }

// answered reports whether err is an answer of the server, after which the outcome is known.
func answered(err error) bool {
	return is[*rows.HeldError](err) || isRefused(err) || is[*rows.QueryError](err) || isDenied(err)
}

// hopeless reports whether the same error would follow a retry.
func hopeless(err error) bool { return isClosed(err) || isDenied(err) || is[*rows.QueryError](err) }

const noContext = "the context is nil; pass context.Background()"

func usable(ctx context.Context) error {
	var list problems
	list.add(ctx == nil, noContext)
	return list.err()
}

// A LostError reports that a claim has lost its row. It matches ErrLost.
type LostError struct {
	ID    string
	Fence int64  // of the lost claim
	Now   string // the present state of the row

	cancelled bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("claim: row %s (fence %d) is lost: %s", e.ID, e.Fence, e.Now)
}

// Is reports whether target is ErrLost, or ErrCancelled for a cancelled row.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target == ErrCancelled && e.cancelled
}

func lost(c *claimed, found *rows.Row) error {
	e := &LostError{ID: rows.Text(c.row.ID), Fence: c.row.Mark.Fence, Now: "its document is gone"}
	if found != nil {
		e.Now = fmt.Sprintf("it is %s, with fence %d", found.Mark.State, found.Mark.Fence)
		e.cancelled = found.Mark.Cancelled ||
			found.Mark.State == rows.Dead && found.Mark.Error == rows.Cancelled
		if e.cancelled {
			e.Now = "it was cancelled"
		}
	}
	return e
}

// A panicError is the failure of a handler that panicked.
type panicError struct {
	Value any
	Stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
