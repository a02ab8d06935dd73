package distlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"mongodlm/catalog"
)

// Errors of acquiring.
var (
	// ErrHeld is matched by *HeldError: somebody else holds the lock.
	ErrHeld = errors.New("distlock: lock is held")
	// ErrNoHeartbeat: no ping of this process was acknowledged in time, so nothing that it
	// acquired could be trusted. The server is unreachable, or was a moment ago.
	ErrNoHeartbeat = errors.New("distlock: no heartbeat")
	// ErrOutcomeUnknown: the server may or may not have done what was asked. It is undone in
	// the background: no lock stays held because of it longer than one ping interval and one
	// command limit, while the process lives.
	ErrOutcomeUnknown = errors.New("distlock: outcome unknown")
	// ErrBadName: the lock name is empty, longer than 1,024 bytes, not valid UTF-8, or contains
	// a NUL byte. Returned before any I/O.
	ErrBadName = errors.New("distlock: bad lock name")
	// ErrBadOption: an argument or option is out of its bounds. Returned before any I/O.
	ErrBadOption = errors.New("distlock: bad option")
	// ErrMalformed is matched by *MalformedError.
	ErrMalformed = catalog.ErrMalformed
	// ErrPermitMismatch is matched by *PermitMismatchError: the lock is in use with another number of permits, by
	// somebody who is not dead by the takeover rule.
	ErrPermitMismatch = catalog.ErrLimit
	// ErrDeadlock is matched by *DeadlockError: to wait on would be to wait for ever.
	ErrDeadlock = errors.New("distlock: deadlock")
	// ErrUnavailable: the server could not be reached, and nothing was done.
	ErrUnavailable = catalog.ErrUnavailable
)

// Errors of holding and releasing.
var (
	// ErrLockLost is matched by *LostError, and is the cause with which a guard's context ends
	// when the lock is lost.
	ErrLockLost = errors.New("distlock: lock lost")
	// ErrReleased is the cause with which a guard's context ends when it is released, and what
	// Err says afterwards.
	ErrReleased = errors.New("distlock: lock released")
	// ErrNoTransactions is returned by InTransaction where the server or the database has none.
	ErrNoTransactions = catalog.ErrNoTransactions
	// ErrClosed: the Manager was closed.
	ErrClosed = errors.New("distlock: manager closed")
	// ErrFenceMismatch is returned by Break when the lock is not as the operator saw it.
	ErrFenceMismatch = errors.New("distlock: lock is not as you saw it")
)

// ErrConfig is matched by *ConfigError: the caller must change something, a bad connection string too.
var ErrConfig = errors.New("distlock: bad configuration")

// A MalformedError names a document that cannot be understood, and its field. Such a lock is never
// taken for free and never taken over.
type MalformedError = catalog.MalformedError

// A PermitMismatchError says that a lock is in use with another number of permits than asked for, or as a
// lock and not as a semaphore.
type PermitMismatchError = catalog.LimitError

// A DeadlockError says that waiting for Name would never end, because whoever is in the way waits,
// directly or by others, for what this caller holds. It is given to the waiter of the circle that
// came last; the others go on once it gives up what it holds.
type DeadlockError struct {
	Name string
	// Chain is the circle in words, one step each, from this waiter back to itself.
	Chain []string
}

func (e *DeadlockError) Error() string {
	return fmt.Sprintf("distlock: acquire %s: deadlock: %s", quoted(e.Name), strings.Join(e.Chain, "; "))
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// A HeldError tells who is in the way of a contender and what is known of him: a holder that lives as
// far as anybody can tell, or, where nobody holds the lock, the first of those who wait. Times of the
// holder are by the server's clock.
type HeldError struct {
	Name    string
	Process string    // holder's process id; empty when unknown
	Who     string    // process id, label and random part
	Why     string    // free text of the holder
	Since   time.Time // zero when unknown
	Fence   int64
	// PingAge is how old the holder's ping was, by the server's clock; negative when there is
	// no ping or no clock to tell.
	PingAge time.Duration
	// Self is true when the holder is this very process.
	Self bool
	// TakeoverIn is how much longer the holder must be seen silent before the lock may be
	// taken over; the whole takeover time while it is alive.
	TakeoverIn time.Duration
	// Mode is "exclusive", "shared" or "permit".
	Mode string
	// Holders is how many hold the lock, and Permits how many may in mode permit, else 0.
	Holders, Permits int
	// Waiters is how many queue for the lock.
	Waiters int
	// Reason is the verdict of the takeover rule in words, with the figures.
	Reason string
}

func (e *HeldError) Error() string { return acquirePrefix(e.Name) + e.facts() }

// facts are the text without the name of the lock.
func (e *HeldError) facts() string {
	var b strings.Builder
	one := catalog.Printable(e.Process, 200)
	switch {
	case e.Process == "":
		b.WriteString("held")
	case e.Permits > 0 && e.Holders > 0:
		are := "are"
		if e.Holders == 1 {
			are = "is"
		}
		fmt.Fprintf(&b, "%d of %d permits %s held, one by %s", e.Holders, e.Permits, are, one)
	case e.Holders > 1:
		fmt.Fprintf(&b, "held by %d who share it, one is %s", e.Holders, one)
	case e.Holders == 0 && e.Waiters > 0:
		fmt.Fprintf(&b, "free, but the next is %s", one)
	default:
		fmt.Fprintf(&b, "held by %s", one)
	}
	if e.Self {
		b.WriteString(" (this process)")
	}
	if e.Why != "" {
		fmt.Fprintf(&b, ", %s", quoted(e.Why))
	}
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, ", since %s", e.Since.Format(time.RFC3339))
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, ": %s", e.Reason)
	}
	return b.String()
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A LostError says that a guard is no longer to be trusted, and why.
type LostError struct {
	Name  string
	Fence int64
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("distlock: lock %q (fence %d) lost: %v", e.Name, e.Fence, e.Cause)
}

// Is reports whether target is ErrLockLost.
func (e *LostError) Is(target error) bool { return target == ErrLockLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// A ReleaseError says that every try to release a lock failed. The release goes on in the
// background after every ping, unless it matches ErrClosed; the guard is over in any case.
type ReleaseError struct {
	Name  string
	Fence int64
	Tries int
	Err   error
}

func (e *ReleaseError) Error() string {
	then := "it goes on in the background"
	if errors.Is(e.Err, ErrClosed) {
		then = "it stays held until it is taken over"
	}
	return fmt.Sprintf("distlock: release %q (fence %d): %d tries failed, %s: %v", e.Name, e.Fence,
		e.Tries, then, e.Err)
}

// Unwrap returns the error of the last try.
func (e *ReleaseError) Unwrap() error { return e.Err }

// A ConfigError lists every contradiction of a Config at once, or says what is wrong with its connection
// string or client options.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "distlock: bad configuration: " + strings.Join(e.Problems, "; ")
}

// Is reports whether target is ErrConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

func quoted(s string) string { return `"` + catalog.Printable(s, 200) + `"` }

// acquiring words an error of an acquisition. A *PermitMismatchError names the lock itself.
func acquiring(name string, err error) error {
	var limit *PermitMismatchError
	if errors.As(err, &limit) {
		return fmt.Errorf("distlock: %w", limit)
	}
	return &acquireError{text: acquirePrefix(name) + reasonText(name, err), causes: []error{err}}
}

// An acquireError is an error of an acquisition, worded once however often it was passed on.
type acquireError struct {
	text   string
	causes []error
}

func (e *acquireError) Error() string { return e.text }

// Unwrap returns what it was made of.
func (e *acquireError) Unwrap() []error { return e.causes }

func acquirePrefix(name string) string { return "distlock: acquire " + quoted(name) + ": " }

// reasonText is the text of an error as the reason of another one of the same acquisition.
func reasonText(name string, err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), acquirePrefix(name)), "distlock: ")
}
