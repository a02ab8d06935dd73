package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/catalog"
)

// Errors for [errors.Is]. The first block contains errors of acquisitions.
var (
	ErrHeld           = errors.New("distlock: lock is held") // matched by *HeldError
	ErrDeadlock       = errors.New("distlock: deadlock")     // matched by *DeadlockError
	ErrPermitMismatch = catalog.ErrPermitMismatch            // matched by *PermitMismatchError
	ErrMalformed      = catalog.ErrMalformed                 // matched by *MalformedError
	// ErrUnavailable means that no document was changed: no server was reached, or the server refuses
	// commands or writes for now: no primary, overload (codes 462 and 463), too many transactions,
	// blocked writes (371). Try again later, and less often.
	ErrUnavailable = catalog.ErrUnavailable
	// ErrOutcomeUnknown means that the server may or may not have carried out the command, for example
	// with a full disk (code 14031). A lock that it acquired is released in the background within a
	// ping interval and one CommandTimeout.
	ErrOutcomeUnknown = errors.New("distlock: outcome unknown")
	ErrNoHeartbeat    = errors.New("distlock: no heartbeat")  // no ping was acknowledged in time
	ErrBadName        = errors.New("distlock: bad lock name") // empty, >1,024 bytes, not UTF-8, or NUL
	ErrBadOption      = errors.New("distlock: bad option")    // an argument or option is out of bounds

	// Errors of holding, releasing and breaking a lock, and of a Manager.

	ErrLockLost      = errors.New("distlock: lock lost")               // matched by *LostError
	ErrLeaseExpired  = errors.New("the lease was not renewed in time") // the cause of a *LostError
	ErrReleased      = errors.New("distlock: lock released")           // the guard was released
	ErrReleaseFailed = errors.New("distlock: release failed")          // matched by *ReleaseError
	ErrClosed        = errors.New("distlock: closed")                  // the Manager is closed
	ErrConfig        = errors.New("distlock: bad configuration")       // matched by *ConfigError
	ErrFenceMismatch = errors.New("distlock: holder does not match")   // returned by Break
	// ErrNoTransactions means that the server (standalone or embedded) or the database (config of a
	// replica set) has no transactions, or that the context of LockInTransaction carries none.
	ErrNoTransactions = catalog.ErrNoTransactions
)

// A MalformedError names a document that cannot be parsed, and its bad field. The lock of that
// document is never treated as free and never taken over.
type MalformedError = catalog.MalformedError

// A PrivilegeError names a privilege that the connection's user lacks, or reports that there is no
// user. Every method with I/O may return it.
type PrivilegeError = catalog.PrivilegeError

// A PermitMismatchError reports that the lock has another number of [Permits].
type PermitMismatchError = catalog.PermitMismatchError

// A DeadlockError reports a call that would wait for a lock that its own caller holds. Why is the
// reason with which the caller holds it.
type DeadlockError struct{ Name, Why string }

func (e *DeadlockError) Error() string {
	text := acquirePrefix(e.Name) + "deadlock: the caller holds the lock itself"
	if e.Why != "" {
		text += " (" + quoted(e.Why) + ")"
	}
	return text + "; TryGuard.Reenter acquires it once more"
}

func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// A HeldError describes the holder that keeps the caller out, or the first waiter if the lock is
// free. After a wait, the values may be two ping intervals old. The times are by the server's
// clock.
type HeldError struct {
	Name       string
	Process    string    // the holder's process id; "" when unknown
	Who        string    // the holder's process id, label and random part
	Why        string    // the holder's reason
	Since      time.Time // zero when unknown
	Fence      int64
	PingAge    time.Duration // age of the holder's ping; negative when unknown
	Self       bool          // the holder is this process
	TakeoverIn time.Duration // remaining silence until a takeover
	Mode       string        // "exclusive", "shared" or "permit"
	Holders    int
	Permits    int // the number of permits; 0 except in mode permit
	Waiters    int
	Reason     string // why the lock was refused: mostly the takeover verdict with its figures
}

func (e *HeldError) Error() string { return acquirePrefix(e.Name) + e.facts() }

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
		fmt.Fprintf(&b, "held by %d sharers, one is %s", e.Holders, one)
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

func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A LostError reports why a guard is lost. It matches [ErrLockLost] and Cause.
type LostError struct {
	Name  string
	Fence int64
	Cause error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("distlock: lock %q (fence %d) lost: %v", e.Name, e.Fence, e.Cause)
}

func (e *LostError) Unwrap() []error { return []error{ErrLockLost, e.Cause} }

// A ReleaseError reports that every try to release a lock failed. The background tries again,
// immediately and after every ping, unless the error matches [ErrClosed]. Then the lock stays held
// until a takeover.
type ReleaseError struct {
	Name  string
	Fence int64
	Tries int
	Err   error
}

func (e *ReleaseError) Error() string {
	then := "retries continue in the background"
	if errors.Is(e.Err, ErrClosed) {
		then = "it stays held until it is taken over"
	}
	return fmt.Sprintf("distlock: release %q (fence %d): %d tries failed, %s: %s", e.Name, e.Fence,
		e.Tries, then, plain(e.Err))
}

func (e *ReleaseError) Unwrap() []error { return []error{ErrReleaseFailed, e.Err} }

// A ConfigError lists all problems of a Config, its URI or its ClientOptions.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "distlock: bad configuration: " + strings.Join(e.Problems, "; ")
}

func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

func quoted(s string) string { return `"` + catalog.Printable(s, 200) + `"` }

// acquiring adds the name of the lock to err. A *PermitMismatchError already contains the name.
func acquiring(name string, err error) error {
	var limit *PermitMismatchError
	if errors.As(err, &limit) {
		return fmt.Errorf("distlock: %w", limit)
	}
	return &acquireError{text: acquirePrefix(name) + reasonText(name, err), causes: []error{err}}
}

// An acquireError is an error of an operation on a lock. The text contains the prefix of this
// package only once.
type acquireError struct {
	text   string
	causes []error
}

func (e *acquireError) Error() string { return e.text }

func (e *acquireError) Unwrap() []error { return e.causes }

// worthWaiting reports whether an error may be temporary. A call waits after such errors.
func worthWaiting(err error) bool {
	passing := []error{
		ErrHeld, ErrNoHeartbeat, ErrUnavailable, ErrOutcomeUnknown, ErrLockLost,
		context.DeadlineExceeded, // of one command; the caller's context is checked elsewhere
	}
	return slices.ContainsFunc(passing, func(one error) bool { return errors.Is(err, one) })
}

func plain(err error) string { return strings.TrimPrefix(err.Error(), "distlock: ") }

// failedTo adds an operation and the name of a lock to an error. If the outcome is unknown, the
// result matches ErrOutcomeUnknown.
func failedTo(do, name string, err error) error {
	if errors.Is(err, catalog.ErrUnknownOutcome) {
		err = doubtful(err)
	}
	text := "distlock: " + do + " " + quoted(name) + ": " + plain(err)
	return &acquireError{text: text, causes: []error{err}}
}

// doubtful makes err also match ErrOutcomeUnknown. The text mentions the unknown outcome only once.
func doubtful(err error) error {
	text := err.Error()
	if !errors.Is(err, catalog.ErrUnknownOutcome) {
		text = plain(ErrOutcomeUnknown) + ": " + text
	}
	return &acquireError{text: text, causes: []error{ErrOutcomeUnknown, err}}
}

func acquirePrefix(name string) string { return "distlock: acquire " + quoted(name) + ": " }

func reasonText(name string, err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), acquirePrefix(name)), "distlock: ")
}

func modeWord(m catalog.Mode) string {
	if m == catalog.Exclusive {
		return "exclusive"
	}
	return string(m)
}

var (
	errDocumentGone = errors.New("the lock document was removed")
	errTimeUp       = errors.New("the time is up") // the time of a call is over
)
