package singleton

import (
	"errors"
	"fmt"
	"time"

	"mongodlm/catalog"
)

// Errors of running.
var (
	// ErrBadArgument is returned, before any I/O, when an argument is out of bounds. The text names
	// the argument and its bounds.
	ErrBadArgument = errors.New("singleton: bad argument")
	// ErrNeverFires is returned by RunSlots when the schedule has no further slot: its Next returns
	// the zero time. RunSlots also checks this at its beginning, before any I/O.
	ErrNeverFires = errors.New("singleton: the schedule never fires")
	// ErrBadSchedule is returned by RunSlots when Next breaks a rule of [Schedule], or when far too
	// many slots are due.
	ErrBadSchedule = errors.New("singleton: bad schedule")
	// ErrStale is returned by a Store when a record has a larger fence than the change. Run and
	// RunSlots return it when that happens while this process holds the lock. Then the locks were
	// set back, for example by the restore of a backup, and the records were not.
	ErrStale = errors.New("singleton: the record carries a newer fence")
	// ErrChanged is returned by a Store if the record does not have the revision that the change
	// requires.
	ErrChanged = errors.New("singleton: the record is not as it was read")
	// ErrPanic is matched by *PanicError.
	ErrPanic = errors.New("singleton: panic")
	// ErrShutdown is the cause of a round's context when Drain has passed since the end of Run's
	// context.
	ErrShutdown = errors.New("singleton: the time to drain is over")
)

// A MalformedError names a document of settings or singletons that cannot be parsed, and the bad
// field.
type MalformedError = catalog.MalformedError

// A PanicError is the error of a round that panicked. The record has the error's text, and the loop
// continues.
type PanicError struct {
	Value any    // the argument of panic
	Stack string // the stack of the goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("singleton: panic: %s", catalog.Printable(fmt.Sprint(e.Value), 300))
}

// Is reports whether target is ErrPanic.
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadArgument, fmt.Sprintf(format, args...))
}

// orDefault sets d to def if it is zero. It returns an error if d is negative.
func orDefault(what string, d *time.Duration, def time.Duration) error {
	if *d < 0 {
		return bad("%s is negative (%v); leave it out for %v", what, *d, def)
	}
	if *d == 0 {
		*d = def
	}
	return nil
}
