package election

import (
	"errors"
	"fmt"

	"mongodlm/catalog"
)

var (
	// ErrNotLeader is returned by Resign and Handover if this Election has no term.
	ErrNotLeader = errors.New("election: not the leader")
	// ErrNobody is returned by RequestYield if there is no leader, or if the name is used for a shared
	// lock or for permits.
	ErrNobody = errors.New("election: no leader")
	// ErrNoCandidate is returned by Handover if the candidate is not queued or has missed two pings.
	// Then the term continues. It is also returned if the candidate leaves the queue before the old
	// leader's function returns. Then the term has ended.
	ErrNoCandidate = errors.New("election: no such candidate")
	// ErrMode is returned by Run, Leader, Candidates, Observe and Handover if the name is used for a
	// shared lock or for permits.
	ErrMode = errors.New("election: the name is in use for a shared lock or a semaphore")
	// ErrRunning is returned by Run if another Run of the same Election has not returned. Make another
	// Election with New.
	ErrRunning = errors.New("election: already running")
	// ErrPanic is matched by every *PanicError.
	ErrPanic = errors.New("election: the function panicked")
	// ErrResigned is the cause of a term's context after Resign.
	ErrResigned = errors.New("election: resigned")
	// ErrHandedOver is the cause of a term's context after Handover.
	ErrHandedOver = errors.New("election: handed over")
)

// A PanicError is the error of a term whose function panicked. It matches [ErrPanic].
type PanicError struct {
	Value string // the argument of panic, as text
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
