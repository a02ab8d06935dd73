// Package leading contains the definitions that package distlock shares with the packages that run
// functions under its locks: elections, loops, schedules and queues.
package leading

import "errors"

// A Key is the argument of distlock.Manager.Internal. Only the packages of this module can make a
// Key.
type Key struct{ _ int }

var (
	// ErrNotHeld is returned by RequestYield when the lock has no exclusive holder.
	ErrNotHeld = errors.New("distlock: lock has no exclusive holder")
	// ErrNotQueued is returned by PutFirst when the session is not queued.
	ErrNotQueued = errors.New("distlock: no such waiter in the queue")
	// ErrSlow means that the server is too slow for the Lease of an acquisition. The error of the
	// acquisition matches ErrSlow. A later attempt may succeed.
	ErrSlow = errors.New("the server is too slow for the lease")
)

// Asked returns err, the error of a user's function. First it calls the methods Error, Is and As of
// err. If one of these methods panics, for example on a nil pointer, Asked panics too, and its
// caller recovers.
func Asked(err error) error {
	if err != nil {
		var none interface{ none() }
		_, _, _ = err.Error(), errors.Is(err, ErrNotHeld), errors.As(err, &none)
	}
	return err
}
