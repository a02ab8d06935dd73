package election

import (
	"errors"
	"fmt"

	"mongodlm/catalog"
)

var (
	// ErrNotLeader is returned by Resign and Handover when this Election is in no term, as before
	// the first one and between two. Nothing was told to stop then.
	ErrNotLeader = errors.New("election: not the leader")
	// ErrNobody is returned by RequestYield when nobody leads.
	ErrNobody = errors.New("election: nobody leads")
	// ErrNoCandidate is returned by Handover when the candidate does not stand in the line, or was
	// silent for more than two ping intervals: leadership is kept then. It is returned as well when
	// the candidate left while the old leader's function was ending, and another one leads.
	ErrNoCandidate = errors.New("election: no such candidate")
	// ErrMode is returned by all when the lock of that name is used with Shared or Permits.
	ErrMode = errors.New("election: the name is in use for a shared lock or a semaphore")
	// ErrRunning is returned by Run while the same Election runs already; make another one with New.
	ErrRunning = errors.New("election: it runs already")
	// ErrPanic is matched by *PanicError.
	ErrPanic = errors.New("election: the function panicked")
	// ErrResigned is the cause with which a term's context ends after Resign.
	ErrResigned = errors.New("election: resigned")
	// ErrHandedOver is the cause with which a term's context ends after Handover.
	ErrHandedOver = errors.New("election: handed over")
)

// A PanicError is what became of a term whose function panicked. It matches [ErrPanic].
type PanicError struct {
	Value string // the value of the panic, printed
	Stack string // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%v: %s", ErrPanic, catalog.Printable(e.Value, 400))
}

// Is reports whether target is ErrPanic.
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// failed words an error of an election.
func (e *Election) failed(verb string, err error) error {
	return fmt.Errorf("election: %s %s: %w", verb, quoted(e.name), err)
}

func quoted(s string) string { return `"` + catalog.Printable(s, 200) + `"` }
