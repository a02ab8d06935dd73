package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// The errors of this package.
var (
	ErrLost           = errors.New("claim: row is lost")       // see [LostError]
	ErrFinished       = errors.New("claim: row is finished")   // see [Row.Err] and [Row.DoneWith]
	ErrRunning        = errors.New("claim: already running")   // another call of Run or Serve runs
	ErrConfig         = errors.New("claim: bad configuration") // see [ConfigError] and [New]
	ErrNoSlot         = errors.New("claim: no slot is free")   // only logged: each tried slot is held
	ErrClosed         = errors.New("claim: queue is closed")   // Run or Serve was called after Close
	ErrOver           = errors.New("claim: row is over")       // see [Admin.Cancel]
	ErrCancelled      = errors.New("claim: row was cancelled") // see [LostError] and [Admin.Cancel]
	ErrNoTransactions = distlock.ErrNoTransactions             // DoneWith on a server without them
	ErrTimeout        = errors.New("claim: the handler had not returned after Config.Timeout")
)

// A ConfigError lists wrong fields or arguments. It matches ErrConfig.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "claim: bad configuration: " + strings.Join(e.Problems, "; ")
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

type problems []string

func (p *problems) add(wrong bool, format string, args ...any) {
	if wrong {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (p problems) err() error {
	if p == nil {
		return nil
	}
	return &ConfigError{Problems: p}
}

// badQuery adds ErrConfig to the error of a query that the server refused.
func badQuery(err error) error {
	if errors.Is(err, rows.ErrQuery) {
		return fmt.Errorf("%w: Filter: %w", ErrConfig, err)
	}
	return err
}

func is[E error](err error) bool { _, is := errors.AsType[E](err); return is }

func isClosed(err error) bool { return errors.Is(err, distlock.ErrClosed) || errors.Is(err, ErrClosed) }

func isDenied(err error) bool { return is[*distlock.PrivilegeError](err) }

func isRefused(err error) bool { return errors.Is(err, rows.ErrRefused) }

// answered reports whether err is a reply of the server, so that the outcome of the command is
// known.
func answered(err error) bool {
	return is[*rows.HeldError](err) || isRefused(err) || errors.Is(err, rows.ErrQuery) || isDenied(err)
}

// hopeless reports whether a retry would fail with the same error.
func hopeless(err error) bool {
	return isClosed(err) || isDenied(err) || errors.Is(err, rows.ErrQuery)
}

const noContext = "the context is nil; pass context.Background()"

func usable(ctx context.Context) error {
	var list problems
	list.add(ctx == nil, noContext)
	return list.err()
}

// A LostError reports that a process has lost a claimed row: it was cancelled, its document is
// gone, or another command has ended the claim. It is the cause of the handler's context, and
// matches ErrLost.
type LostError struct {
	ID    string
	Fence int64  // the fence of the lost claim
	Now   string // the present state of the row

	cancelled bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("claim: row %s (fence %d) is lost: %s", e.ID, e.Fence, e.Now)
}

// Is reports whether target is ErrLost or, for a cancelled row, ErrCancelled.
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
