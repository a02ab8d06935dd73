// Package clock is the only place of the module that reads the time of day.
//
// A [Reading] keeps the wall clock and the monotonic clock of one instant separate. A holder must
// not count too little time, so it counts the LARGER of the two ([HolderElapsed]): a suspended
// machine stops the monotonic clock, and an operator may set the wall clock back. A contender must
// not count too much time. It counts the SMALLER of its monotonic clock and the server's clock, see
// package takeover.
//
// This package never compares the wall clocks of two machines.
package clock

import (
	"context"
	"time"
)

// A Reading is one instant of one process, by both of its clocks. Readings of different processes
// must not be compared.
type Reading struct {
	// Wall is the time of day in UTC, without a monotonic part. It may step forward or back.
	Wall time.Time
	// Mono is the time since an arbitrary fixed point of this process. It never falls. It may stop
	// while the machine is suspended.
	Mono time.Duration
}

// A Clock returns the time and makes timers. [System] returns the system's clock. Tests and
// simulations use other clocks, one for each simulated process. It is safe for concurrent use.
type Clock interface {
	// Now reads both clocks.
	Now() Reading
	// NewTimer returns a timer that fires once after d, measured by the monotonic clock.
	NewTimer(d time.Duration) Timer
}

type carried struct{}

// With returns a context that carries a clock. Objects that a test or a simulation makes with this
// context, such as a Manager of package distlock, use that clock.
func With(ctx context.Context, c Clock) context.Context {
	return context.WithValue(ctx, carried{}, c)
}

// From returns the clock that ctx carries, or a new clock of the system. Keep the clock: see
// [System].
func From(ctx context.Context) Clock {
	if c, ok := ctx.Value(carried{}).(Clock); ok {
		return c
	}
	return System()
}

// A Timer has the semantics of [time.Timer]: after Stop or Reset no stale value is received.
type Timer interface {
	// C returns the channel on which the time is delivered.
	C() <-chan time.Time
	// Reset makes the timer fire after d from now.
	Reset(d time.Duration)
	// Stop prevents the timer from firing.
	Stop()
}

// HolderElapsed returns the time that a holder must count between two readings. It is the larger of
// the times by the monotonic clock and by the wall clock, and never negative.
func HolderElapsed(then, now Reading) time.Duration {
	return max(now.Mono-then.Mono, now.Wall.Sub(then.Wall), 0)
}

// system is the machine's clock. Its monotonic readings count from start. Every call of System sets
// a new start, so a clock that is made inside a testing/synctest bubble belongs to that bubble.
type system struct{ start time.Time }

// System returns the machine's clock. Inside a testing/synctest bubble it is the bubble's clock.
// Each call of System returns a new clock. Readings of two clocks must not be mixed.
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

// Sleep waits for d on c. It reports whether d passed before done was closed.
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

// Until returns a context that ends when done is closed.
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
