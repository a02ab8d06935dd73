// Package leading is the seam between distlock and the packages that run functions under its locks:
// what only elections, loops, schedules and queues ask of a lock, and what distlock does not
// export.
package leading

import (
	"context"
	"errors"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
)

var (
	// ErrNotHeld is returned by RequestYield when nobody holds the lock alone.
	ErrNotHeld = errors.New("distlock: lock is not held by one holder")
	// ErrNotInLine is returned by PutFirst when the session does not stand in the line.
	ErrNotInLine = errors.New("distlock: no such waiter in the line")
	// ErrSlow is matched by the ErrBadOption of a Lease for which the round trips of its beginning
	// were too long: that may pass.
	ErrSlow = errors.New("the server is too slow for it")
)

// A Seam is what distlock provides, with its types: a lock, a guard, and who holds a lock.
type Seam[Lock, Guard, Info any] struct {
	// Watch yields who holds the lock, nil when nobody does, and then every change, until ctx ends:
	// of several holders the first, and requests to yield, too. About every Config.PollMax one
	// command reads the names of all callers of the process (a page more for each hundred names,
	// three on the embedded server). Of several changes between two readings, or while the caller
	// was busy, only the last is told; the fence tells how many there were.
	//
	// An error that may pass, such as ErrUnavailable, is yielded once, and so is a *MalformedError;
	// the watch goes on, and what is seen next is yielded in any case. What ends it is yielded
	// last: the cause of ctx, ErrClosed, ErrBadName.
	Watch func(ctx context.Context, lock Lock) iter.Seq2[Info, error]

	// RequestYield asks the holder to give the lock up, by a wish in the lock document for that
	// very session, so that no later holder sees it: LockInfo.YieldBy and YieldWhy. It replaces an
	// earlier one. why is at most 1 KiB of valid UTF-8 without NUL. A read and a compare-and-set.
	//
	// Errors: ErrNotHeld when nobody holds the lock, or it is shared or held by permits; ErrBadName;
	// ErrBadOption; ErrOutcomeUnknown: ask again; ErrUnavailable; ErrClosed; *MalformedError.
	RequestYield func(ctx context.Context, lock Lock, why string) error

	// PutFirst puts a waiter, named by its session as LockInfo has it, at the front of the line, so
	// that the release of this guard grants it the lock. A later call with another waiter replaces
	// it; a waiter that leaves the line before the release is not waited for. A read and a
	// compare-and-set, and with the context of InTransaction's work a part of the transaction.
	//
	// Errors: those of the guard's Err; ErrNotInLine; ErrBadOption for a guard that is shared or a
	// permit; ErrOutcomeUnknown: put it first again; ErrUnavailable; *MalformedError; *LostError.
	PutFirst func(ctx context.Context, guard Guard, waiter bson.ObjectID) error

	// Standby returns the lock for a caller who waits on purpose, for as long as a live holder goes
	// on: a candidate, a follower. Its waiting is left out of Stats.OldestWait. No I/O.
	Standby func(lock Lock) Lock

	// Use says that a function is about to run under a guard, until done is called: Close of the
	// Manager ends the guard, waits for the function within its context, and does not release the
	// lock before. Ask the guard's Err after Use, and begin nothing unless it is nil. No I/O.
	Use func(guard Guard) (done func())
}

var provided any // a Seam; set while package distlock is initialized, and not changed

// Provide is called by distlock.
func Provide[Lock, Guard, Info any](s Seam[Lock, Guard, Info]) { provided = s }

// Of returns what distlock has provided, for a package that imports it, and so comes after it.
func Of[Lock, Guard, Info any]() Seam[Lock, Guard, Info] {
	return provided.(Seam[Lock, Guard, Info])
}

// Asked is the error of a function of the user, once it has been asked for its text and for all
// that it wraps: one that panics then, as of a nil pointer, does so where panics are caught.
func Asked(err error) error {
	if err != nil {
		var none interface{ none() }
		_, _, _ = err.Error(), errors.Is(err, ErrNotHeld), errors.As(err, &none)
	}
	return err
}
