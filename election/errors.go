package election

import (
	"errors"
	"fmt"

	"mongodlm/catalog"
)

var (
	// ErrNotLeader is returned by Resign and Handover when this Election has no term.
	ErrNotLeader = errors.New("election: not the leader")
	// ErrNobody is returned by RequestYield when there is no leader.
	ErrNobody = errors.New("election: no leader")
	// ErrNoCandidate is returned by Handover when the candidate is not queued or has missed two
	// pings. The term continues then. It is also returned when the candidate left the queue before
	// the old leader's function returned.
	ErrNoCandidate = errors.New("election: no such candidate")
	// ErrMode is returned by all methods when the name is used for a shared lock or for permits.
	ErrMode = errors.New("election: the name is in use for a shared lock or a semaphore")
	// ErrRunning is returned by Run during another Run of the same Election. Make another Election
	// with New.
	ErrRunning = errors.New("election: already running")
	// ErrPanic is matched by *PanicError.
	ErrPanic = errors.New("election: the function panicked")
	// ErrResigned is the cause of a term's context after Resign.
	ErrResigned = errors.New("election: resigned")
	// ErrHandedOver is the cause of a term's context after Handover.
	ErrHandedOver = errors.New("election: handed over")
)

// A PanicError is the error of a term whose function panicked. It matches [ErrPanic].
type PanicError struct {
	Value string // the value of the panic, printed
	Stack string // the stack of the goroutine that panicked
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%v: %s", ErrPanic, catalog.Printable(e.Value, 400))
}

// Is reports whether target is ErrPanic.
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// failed adds the verb of the operation and the election's name to an error.
func (e *Election) failed(verb string, err error) error {
	return fmt.Errorf("election: %s %s: %w", verb, quoted(e.name), err)
}

func quoted(s string) string { return `"` + catalog.Printable(s, 200) + `"` }
