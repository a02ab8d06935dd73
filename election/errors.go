package election

import (
	"errors"
	"fmt"

	"mongodlm/catalog"
)

var (
	// ErrNotLeader is returned by Resign and Handover when this Election has no term, as before the
	// first one and between two. No function was stopped then.
	ErrNotLeader = errors.New("election: not the leader")
	// ErrNobody is returned by RequestYield when there is no leader.
	ErrNobody = errors.New("election: no leader")
	// ErrNoCandidate is returned by Handover when the candidate is not queued, or was silent for
	// more than two ping intervals: leadership is kept then. It is also returned when the candidate
	// left before the old leader's function returned, and another one leads.
	ErrNoCandidate = errors.New("election: no such candidate")
	// ErrMode is returned by all methods when the lock of that name is used with Shared or Permits.
	ErrMode = errors.New("election: the name is in use for a shared lock or a semaphore")
	// ErrRunning is returned by Run during another Run of the same Election; make another one with
	// New.
	ErrRunning = errors.New("election: already running")
	// ErrPanic is matched by *PanicError.
	ErrPanic = errors.New("election: the function panicked")
	// ErrResigned is the cause with which a term's context ends after Resign.
	ErrResigned = errors.New("election: resigned")
	// ErrHandedOver is the cause with which a term's context ends after Handover.
	ErrHandedOver = errors.New("election: handed over")
)

// A PanicError is the error of a term whose function panicked. It matches [ErrPanic].
type PanicError struct {
	Value string // the value of the panic, printed
	Stack string // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%v: %s", ErrPanic, catalog.Printable(e.Value, 400))
}

// Is reports whether target is ErrPanic.
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// failed returns an error of an operation of the election.
func (e *Election) failed(verb string, err error) error {
	return fmt.Errorf("election: %s %s: %w", verb, quoted(e.name), err)
}

func quoted(s string) string { return `"` + catalog.Printable(s, 200) + `"` }
