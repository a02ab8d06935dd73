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
	// ErrHeld is matched by *HeldError: the lock is taken, or was not to be had in time.
	ErrHeld = errors.New("distlock: lock is held")
	// ErrPermitMismatch is matched by *PermitMismatchError.
	ErrPermitMismatch = catalog.ErrPermitMismatch
	// ErrDeadlock is matched by *DeadlockError.
	ErrDeadlock = errors.New("distlock: deadlock")
	// ErrNoHeartbeat is returned by TryLock and Manager.Err, and by all that wait when their time is
	// up, while no ping is acknowledged in time, so that no guard could be trusted.
	ErrNoHeartbeat = errors.New("distlock: no heartbeat")
	// ErrOutcomeUnknown is returned when the server may or may not have done what was asked. An
	// acquisition is undone in the background, within a ping interval and one command limit.
	ErrOutcomeUnknown = errors.New("distlock: outcome unknown")
	// ErrUnavailable is returned when the server could not be reached, and nothing was done.
	ErrUnavailable = catalog.ErrUnavailable
	// ErrMalformed is matched by *MalformedError.
	ErrMalformed = catalog.ErrMalformed
	// ErrBadName: a name is empty, over 1,024 bytes, not valid UTF-8, or has a NUL byte. Before any
	// I/O.
	ErrBadName = errors.New("distlock: bad lock name")
	// ErrBadOption is returned before any I/O when an argument or option is out of its bounds, and
	// after the acquisition's first renewal when a Lease is too short for the round trips.
	ErrBadOption = errors.New("distlock: bad option")
)

// Errors of holding, releasing and breaking.
var (
	// ErrLockLost is matched by *LostError.
	ErrLockLost = errors.New("distlock: lock lost")
	// ErrLeaseExpired is the cause of a *LostError when the guard's Lease was not renewed in time.
	ErrLeaseExpired = errors.New("the lease was not renewed in time")
	// ErrReleased is returned by Err and Reenter of a guard that was released.
	ErrReleased = errors.New("distlock: lock released")
	// ErrReleaseFailed is matched by *ReleaseError.
	ErrReleaseFailed = errors.New("distlock: release failed")
	// ErrNoTransactions is returned by InTransaction and LockInTransaction where the server or the
	// database has no transactions, and by LockInTransaction when its context carries none.
	ErrNoTransactions = catalog.ErrNoTransactions
	// ErrFenceMismatch is returned by Break when the lock is not as the operator saw it.
	ErrFenceMismatch = errors.New("distlock: lock is not as you saw it")
	// ErrClosed is returned by all that acquire, and by an Inspector, once Close of the Manager or the
	// Inspector has begun, and by Err and Release of a guard that Close has freed.
	ErrClosed = errors.New("distlock: closed")
)

// ErrConfig is matched by *ConfigError, which New, NewInspector and Config.Validate return.
var ErrConfig = errors.New("distlock: bad configuration")

// A MalformedError names a document that cannot be understood, and its field. Such a lock is never
// taken for free and never taken over. All that acquire and all of Inspector return it.
type MalformedError = catalog.MalformedError

// A PrivilegeError says which privilege the user of the connection lacks, or that there is no user.
// New, all that acquire, and all methods of Inspector return it.
type PrivilegeError = catalog.PrivilegeError

// A PermitMismatchError says that a holder or waiter that is not dead uses the lock with another
// number of permits than asked for, or as a lock and not as a semaphore. All that acquire return
// it.
type PermitMismatchError = catalog.PermitMismatchError

// A DeadlockError says that waiting for Name would never end, because the holder or waiter in the
// way waits, directly or by others, for what this caller holds. Lock, LockAll, Do and
// LockInTransaction return it to the waiter of the circle that most others wait for, among equals
// to the last that came; the others go on once it gives up what it holds.
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

// A HeldError tells who is in the way: a holder that lives as far as the takeover rule can tell,
// or, where the lock is free, the first waiter. Times of the holder are by the server's clock.
type HeldError struct {
	Name    string
	Process string    // the holder's process id; "" when unknown
	Who     string    // its process id, label and random part
	Why     string    // its reason
	Since   time.Time // zero when unknown
	Fence   int64
	PingAge time.Duration // of its ping, by the server's clock; negative when unknown
	Self    bool          // the holder is this very process
	// TakeoverIn is for how much longer the holder must be seen silent before the lock may be taken
	// over; the whole takeover time while it is alive.
	TakeoverIn time.Duration
	Mode       string // "exclusive", "shared" or "permit"
	Holders    int
	Permits    int // how many there are; 0 but in mode permit
	Waiters    int
	Reason     string // the verdict of the takeover rule in words, with the figures
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

// A LostError says that a guard is no longer to be trusted, and why. A guard and Do return it once
// the lock is lost, and all that acquire when the reply came after the deadline.
type LostError struct {
	Name  string
	Fence int64
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("distlock: lock %q (fence %d) lost: %v", e.Name, e.Fence, e.Cause)
}

// Unwrap returns ErrLockLost and the cause.
func (e *LostError) Unwrap() []error { return []error{ErrLockLost, e.Cause} }

// A ReleaseError says that every try to release a lock failed. The guard is over. The background
// goes on trying, at once and after every ping, unless the error matches [ErrClosed]: then the lock
// stays held until it is taken over.
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

// Unwrap returns ErrReleaseFailed and the error of the last try.
func (e *ReleaseError) Unwrap() []error { return []error{ErrReleaseFailed, e.Err} }

// A ConfigError lists every contradiction of a Config, or what is wrong with its connection string
// or client options.
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

// plain is the text of an error for the middle of another one of this package.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "distlock: ") }

// doubtful is an error after which the outcome is not known: it matches ErrOutcomeUnknown, and says
// so once.
func doubtful(err error) error {
	text := err.Error()
	if !errors.Is(err, catalog.ErrUnknownOutcome) {
		text = plain(ErrOutcomeUnknown) + ": " + text
	}
	return &acquireError{text: text, causes: []error{ErrOutcomeUnknown, err}}
}

func acquirePrefix(name string) string { return "distlock: acquire " + quoted(name) + ": " }

// reasonText is the text of an error as the reason of another one of the same acquisition.
func reasonText(name string, err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), acquirePrefix(name)), "distlock: ")
}
