package catalog

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of reads and of conditional writes.
var (
	// ErrNotFree is returned by Enter and EnterTransaction if the lock cannot be acquired without
	// waiting. Enter with TryPlain also returns ErrNotFree if the document is malformed. A Snapshot
	// shows which of the two is the reason.
	ErrNotFree = errors.New("lock is not free")
	// ErrNoMatch is returned by a conditional write if no document meets its conditions. The store is
	// unchanged.
	ErrNoMatch = errors.New("document is not as expected")
	// ErrNotFound is returned by Read when the document does not exist.
	ErrNotFound = errors.New("no such document")
	// ErrUnknownOutcome is matched by the error of a write with an unknown outcome. The write may have
	// been applied, or may be applied later.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrUnavailable is matched by the error of an operation that was not applied. The server could
	// not be reached, had no primary, was overloaded, or did not accept writes.
	ErrUnavailable = errors.New("server unavailable")
	// ErrNoTransactions is returned by Transact and EnterTransaction if the deployment or the
	// configured database does not support transactions. The store is unchanged.
	ErrNoTransactions = errors.New("no transactions here")
	// ErrCondemned is matched by *CondemnedError.
	ErrCondemned = errors.New("process was condemned")
	// ErrTwin is matched by *TwinError.
	ErrTwin = errors.New("the ping document has another writer")
	// ErrMalformed is matched by *MalformedError.
	ErrMalformed = errors.New("malformed document")
)

// A MalformedError names a document that cannot be interpreted, and its invalid field. While the
// document of a lock is malformed, no session acquires the lock and no holder is evicted.
type MalformedError struct {
	Collection string // "locks", "lockpings" or "lockhistory"
	ID         string // the _id; extended JSON if it is not a string
	Field      string
	Problem    string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("malformed document %s %q: field %q %s; repair or remove it by hand",
		e.Collection, Printable(e.ID, 200), e.Field, e.Problem)
}

// Is reports whether target is ErrMalformed.
func (e *MalformedError) Is(target error) bool { return target == ErrMalformed }

// A CondemnedError reports that a contender has declared the process dead.
type CondemnedError struct {
	Process string
	// Condemnation is the contender's mark; zero if it could not be read.
	Condemnation Condemnation
}

func (e *CondemnedError) Error() string {
	if e.Condemnation.By == "" {
		return fmt.Sprintf("process %q was condemned", e.Process)
	}
	return fmt.Sprintf("process %q was condemned by %q: %s", e.Process,
		Printable(e.Condemnation.By, 200), Printable(e.Condemnation.Evidence, 400))
}

// Is reports whether target is ErrCondemned.
func (e *CondemnedError) Is(target error) bool { return target == ErrCondemned }

// A TwinError reports that the process's ping document has a number or a local time that the
// process did not write. Either another process has the same id, for example after a machine was
// restored from a snapshot, or an operator edited the document. The refused ping did not change the
// document.
type TwinError struct {
	Process string
	Sent    int64 // number of the refused ping
	Found   Ping
}

func (e *TwinError) Error() string {
	found := "has no seq"
	if e.Found.HasSeq {
		found = fmt.Sprintf("has seq %d", e.Found.Seq)
	}
	return fmt.Sprintf("ping %d of process %q was refused, its document %s: another process has "+
		"the same id, or the document was edited", e.Sent, e.Process, found)
}

// Is reports whether target is ErrTwin.
func (e *TwinError) Is(target error) bool { return target == ErrTwin }

// A PrivilegeError names a privilege that the connection's user lacks.
type PrivilegeError struct {
	Namespace string // "config.locks"
	Action    string // "find, insert, update"
	Err       error
}

func (e *PrivilegeError) Error() string {
	if e.NoUser() {
		return fmt.Sprintf("not authenticated: this connection has no user; give it one that has the "+
			"actions %s on %s: %v", e.Action, e.Namespace, e.Err)
	}
	return fmt.Sprintf("not authorized: grant the actions %s on %s to the user of this connection: %v",
		e.Action, e.Namespace, e.Err)
}

// NoUser reports whether the connection is not authenticated.
func (e *PrivilegeError) NoUser() bool {
	return e.Err != nil && strings.Contains(strings.ToLower(e.Err.Error()), "requires authentication")
}

// Unwrap returns the server's error.
func (e *PrivilegeError) Unwrap() error { return e.Err }
