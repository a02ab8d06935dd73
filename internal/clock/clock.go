// Package clock is the only place of the module that reads the time of day.
//
// A [Reading] keeps the wall clock and the monotonic clock of one instant apart, because the two
// sides of a lock must err in opposite directions. A holder that asks "may I still trust my lock"
// counts the LARGER of the two ([HolderElapsed]): suspending a machine stops the monotonic clock,
// an operator's hand sets the wall clock back, and neither may make it count too little. A
// contender that asks "has the holder been silent long enough" counts the SMALLER of the monotonic
// clock and the server's clock; that rule lives in package takeover.
//
// No wall clock of one machine is compared with that of another here.
package clock

import (
	"context"
	"time"
)

// A Reading is one instant of one process, by both of its clocks.
// Readings of different processes must not be compared.
type Reading struct {
	// Wall is the time of day in UTC, without a monotonic part. It may step either way.
	Wall time.Time
	// Mono is the time since an arbitrary fixed point of this process. It never falls, and it
	// may stand still while the machine is suspended.
	Mono time.Duration
}

// A Clock tells the time and makes timers. The system's clock is [System]; tests and simulations
// bring their own, one for each process they play. Safe for concurrent use.
type Clock interface {
	// Now reads both clocks.
	Now() Reading
	// NewTimer returns a timer that fires once after d, measured by the monotonic clock.
	NewTimer(d time.Duration) Timer
}

type carried struct{}

// With returns a context that carries a clock: whatever a test or a simulation makes under it, as a
// Manager of package distlock, lives by that clock.
func With(ctx context.Context, c Clock) context.Context {
	return context.WithValue(ctx, carried{}, c)
}

// From returns the clock that ctx carries, else a new one of the system. Keep it: see [System].
func From(ctx context.Context) Clock {
	if c, ok := ctx.Value(carried{}).(Clock); ok {
		return c
	}
	return System()
}

// A Timer follows the semantics of [time.Timer]: after Stop or Reset no stale value is received.
type Timer interface {
	// C returns the channel on which the time is delivered.
	C() <-chan time.Time
	// Reset makes the timer fire after d from now.
	Reset(d time.Duration)
	// Stop prevents the timer from firing.
	Stop()
}

// HolderElapsed returns how long a holder must count between then and now: the larger of what its
// monotonic clock and its wall clock say, never less than zero.
func HolderElapsed(then, now Reading) time.Duration {
	return max(now.Mono-then.Mono, now.Wall.Sub(then.Wall), 0)
}

// system counts its monotonic readings from start. Every call of System makes a start of its own,
// so that a clock made inside a testing/synctest bubble lives in that bubble.
type system struct{ start time.Time }

// System returns the machine's clock. Inside a testing/synctest bubble it is the bubble's clock.
// Readings of two clocks must not be mixed: keep the one you made.
func System() Clock { return system{start: time.Now()} }

func (s system) Now() Reading {
	now := time.Now()
	return Reading{Wall: now.Round(0).UTC(), Mono: now.Sub(s.start)}
}

func (system) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

type systemTimer struct{ t *time.Timer }

func (t systemTimer) C() <-chan time.Time   { return t.t.C }
func (t systemTimer) Reset(d time.Duration) { t.t.Reset(d) }
func (t systemTimer) Stop()                 { t.t.Stop() }

// Sleep waits for d on c and reports whether it passed before done was closed.
func Sleep(c Clock, d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		return !Over(done)
	}
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return false
	case <-t.C():
		return true
	}
}

// Over reports whether done is closed.
func Over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Until returns a context that ends when done is closed: a command under way is given up then.
func Until(done <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with ctx
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
