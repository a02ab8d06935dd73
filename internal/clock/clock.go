// Package clock reads the time. No other package of the module reads the time of day, except in
// tests.
//
// A [Reading] stores the times of the wall clock and of the monotonic clock at one instant. The
// monotonic clock stops while the machine is suspended, and an operator may set the wall clock
// back. A holder must not count too little time. So it counts the LARGER of the two elapsed times,
// see [HolderElapsed]. A contender must not count too much time. So it counts the SMALLER of the
// elapsed times of its monotonic clock and of the server's clock, see package takeover.
//
// This package never compares the wall clocks of two machines.
package clock

import (
	"context"
	"time"
)

// A Reading stores the times of the wall clock and of the monotonic clock of one process at one
// instant. Readings of different processes must not be compared.
type Reading struct {
	// Wall is the time of day in UTC, without a monotonic part. It may step forward or back.
	Wall time.Time
	// Mono is the time since an arbitrary fixed point of this process. It never decreases. It may stop
	// while the machine is suspended.
	Mono time.Duration
}

// A Clock returns the time and makes timers. [System] returns the clock of the machine. Tests and
// simulations use other clocks, one for each simulated process. A Clock is safe for concurrent use.
type Clock interface {
	// Now reads the wall clock and the monotonic clock.
	Now() Reading
	// NewTimer returns a timer that fires once after d, measured by the monotonic clock.
	NewTimer(d time.Duration) Timer
}

type carried struct{}

// With returns a context that carries a clock. An object that is made with this context, such as a
// Manager of package distlock, uses that clock.
func With(ctx context.Context, c Clock) context.Context {
	return context.WithValue(ctx, carried{}, c)
}

// From returns the clock that ctx carries. If ctx carries no clock, From returns a new clock of
// [System]. In that case keep the clock, because readings of two clocks must not be mixed.
func From(ctx context.Context) Clock {
	if c, ok := ctx.Value(carried{}).(Clock); ok {
		return c
	}
	return System()
}

// A Timer behaves like [time.Timer]: after Stop or Reset, its channel has no stale value.
type Timer interface {
	// C returns the channel on which the time is delivered.
	C() <-chan time.Time
	// Reset makes the timer fire after d from now.
	Reset(d time.Duration)
	// Stop prevents the timer from firing.
	Stop()
}

// HolderElapsed returns the time that a holder must count between two readings. It is the larger of
// the elapsed times of the monotonic clock and of the wall clock, and never negative.
func HolderElapsed(then, now Reading) time.Duration {
	return max(now.Mono-then.Mono, now.Wall.Sub(then.Wall), 0)
}

// system is the machine's clock. Mono counts from the field start, which each call of System sets.
// So a clock that is made inside a testing/synctest bubble belongs to that bubble.
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

// Sleep waits for the duration d on the clock c. It reports whether d passed before the channel
// done was closed.
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

// Over reports whether the channel done is closed.
func Over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// Until returns a context that ends when the channel done is closed.
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
