package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

var (
	// ErrLost is matched by *LostError, which all that end a claim return when the row is no longer
	// claimed by it.
	ErrLost = errors.New("claim: row is lost")
	// ErrFinished is returned by all that end a claim when this worker has ended it already.
	ErrFinished = errors.New("claim: row is finished already")
	// ErrInFlight is returned by Claim when the process has claimed as many rows as InFlight allows.
	ErrInFlight = errors.New("claim: too many rows in flight")
	// ErrRunning is returned by Run while another Run of the same queue is under way.
	ErrRunning = errors.New("claim: already running")
	// ErrConfig is matched by *ConfigError, which New returns, and every call with a nil context or
	// function.
	ErrConfig = errors.New("claim: bad configuration")
	// ErrNoSlot is returned by Claim when every slot that was tried is held, many thousands of
	// processes.
	ErrNoSlot = errors.New("claim: no slot is free")
	// ErrClosed is returned after Close of the queue has begun.
	ErrClosed = errors.New("claim: queue is closed")
	// ErrNoTransactions is returned by DoneWith where the server has no transactions.
	ErrNoTransactions = distlock.ErrNoTransactions
)

// A ConfigError lists every contradiction of a Config at once.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "claim: bad configuration: " + strings.Join(e.Problems, "; ")
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// badQuery marks the refusal of a query as one of the configuration.
func badQuery(err error) error {
	var query *rows.QueryError
	if errors.As(err, &query) {
		return fmt.Errorf("%w: Filter or Sort: %w", ErrConfig, err)
	}
	return err
}

const noContext = "the context is nil; pass context.Background()"

// usable refuses a context with which nothing can be done.
func usable(ctx context.Context) error {
	if ctx == nil {
		return &ConfigError{Problems: []string{noContext}}
	}
	return nil
}

// A LostError says that a row is no longer claimed by the worker that wanted to end the claim, and
// what became of it. Nothing was changed. It matches [ErrLost].
type LostError struct {
	ID    string
	Fence int64 // of the claim that was lost
	Now   string

	cancelled bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("claim: row %s (fence %d) is lost: %s", e.ID, e.Fence, e.Now)
}

// Is reports whether target is ErrLost, or ErrCancelled for a row that was.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target == ErrCancelled && e.cancelled
}

// lost words what became of a row; nil when there is none any more.
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
