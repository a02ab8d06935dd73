package singleton

import (
	"errors"
	"fmt"

	"mongodlm/catalog"
)

// The errors of this package.
var (
	// ErrBadArgument is returned before any I/O if an argument is not valid. Its text names the
	// argument and the problem. RunNow and ForgetFuture also return ErrBadArgument if they read a
	// record of the wrong kind.
	ErrBadArgument = errors.New("singleton: bad argument")
	// ErrNeverFires is returned by RunSlots if the schedule has no further slot, because its method
	// Next returns the zero time. RunSlots also checks this before any I/O.
	ErrNeverFires = errors.New("singleton: the schedule never fires")
	// ErrBadSchedule is returned by RunSlots and LatestSlot if the schedule violates a rule of
	// [Schedule], or if far too many slots are due.
	ErrBadSchedule = errors.New("singleton: bad schedule")
	// ErrStale is returned by a Store if the fence of the record is larger than the fence of the
	// change. Run and RunSlots return it only if this process still holds the lock. In this case the
	// locks were reset and the records were not, for example when a backup was restored.
	ErrStale = errors.New("singleton: the record carries a newer fence")
	// ErrChanged is returned by a Store if the record does not have the revision that the change
	// requires.
	ErrChanged = errors.New("singleton: the record has changed since it was read")
	// ErrPanic is matched by every *PanicError.
	ErrPanic = errors.New("singleton: panic")
	// ErrShutdown is the cause of a round's context if the context ended at the end of the drain time.
	// The drain time is Loop.Drain or Slots.Drain.
	ErrShutdown = errors.New("singleton: the drain time has passed")
)

// A MalformedError reports a settings document or a record that cannot be parsed. It names the
// document and the field.
type MalformedError = catalog.MalformedError

// A PanicError is the error of a round that panicked. The text of the error is stored in the
// record, and the loop continues.
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
