package claim

import (
	"errors"
	"fmt"
	"strings"

	"context"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

var (
	// ErrLost is matched by *LostError.
	ErrLost = errors.New("claim: row is lost")
	// ErrFinished is returned by [Row.Err] and [Row.DoneWith] after the end of the claim, or when the
	// handler has returned.
	ErrFinished = errors.New("claim: row is finished")
	// ErrRunning is returned by Run and Serve while another one of the same queue runs.
	ErrRunning = errors.New("claim: already running")
	// ErrConfig is matched by *ConfigError, which New and NewAdmin return, and every call with a nil
	// context or function.
	ErrConfig = errors.New("claim: bad configuration")
	// ErrNoSlot is logged when every slot that a process tried is held.
	ErrNoSlot = errors.New("claim: no slot is free")
	// ErrClosed is returned by Run and Serve after Close of the queue.
	ErrClosed = errors.New("claim: queue is closed")
	// ErrOver is returned by [Admin.Cancel] if the row is done, dead or gone.
	ErrOver = errors.New("claim: row is over")
	// ErrCancelled is matched by the *LostError of a row that was cancelled, the cause with which the
	// context of its handler ends.
	ErrCancelled = errors.New("claim: row was cancelled")
	// ErrNoTransactions is returned by [Row.DoneWith] if the server has no transactions.
	ErrNoTransactions = distlock.ErrNoTransactions
)

// A ConfigError lists every contradiction of a Config.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "claim: bad configuration: " + strings.Join(e.Problems, "; ")
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// badQuery marks the refusal of a query as an error of the configuration.
func badQuery(err error) error {
	var query *rows.QueryError
	if errors.As(err, &query) {
		return fmt.Errorf("%w: Filter: %w", ErrConfig, err)
	}
	return err
}

const noContext = "the context is nil; pass context.Background()"

// usable refuses a nil context.
func usable(ctx context.Context) error {
	if ctx == nil {
		return &ConfigError{Problems: []string{noContext}}
	}
	return nil
}

// A LostError reports that a row is not claimed by this claim any more. The claim changed nothing.
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

// lost returns the *LostError of a row; found is nil if it is gone.
func lost(c *claimed, found *rows.Row) error {
	e := &LostError{ID: rows.Text(c.row.ID), Fence: c.row.Mark.Fence, Now: "its document is gone"}
	if found != nil {
		e.Now = fmt.Sprintf("it is %s, with fence %d", found.Mark.State, found.Mark.Fence)
		m := found.Mark
		if e.cancelled = m.Cancelled || m.State == rows.Dead && m.Error == rows.Cancelled; e.cancelled {
			e.Now = "it was cancelled"
		}
	}
	return e
}

// A PanicError is the failure of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }
