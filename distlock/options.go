package distlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mongodlm/catalog"
)

// Limits of arguments, in bytes.
const (
	maxName  = 1024
	maxWhy   = 1024
	maxLabel = 128
)

// An Option adjusts one acquisition.
type Option interface{ apply(*acquireOptions) }

type acquireOptions struct {
	want
	parent  context.Context // parent of the guard's context: the caller's context
	wait    time.Duration
	bounded bool
	limits  int // argument of Permits, not checked yet
	leased  bool
	began   time.Duration // monotonic time of the call
}

type optionFunc func(*acquireOptions)

func (f optionFunc) apply(o *acquireOptions) { f(o) }

// Why records a reason in the lock document: at most 1 KiB of valid UTF-8 without NUL. If a waiting
// call gives up, its queue entry can serve another call. The document keeps the reason and [Label]
// of the first call.
func Why(reason string) Option { return optionFunc(func(o *acquireOptions) { o.why = reason }) }

// Label sets the caller's name in the field who, at most 128 bytes without a colon. The default is
// "go"; mongos records the name of the thread.
func Label(label string) Option { return optionFunc(func(o *acquireOptions) { o.label = label }) }

// WaitAtMost bounds the time that [DistributedLock.Lock], [Manager.Do] and [Manager.LockAll] take
// to acquire. Unlike a timeout of the context, it does not end the guard. Zero means one try. When
// the time is up, the error is the last reason to wait, such as [ErrHeld], or [ErrUnavailable] if
// the server did not answer in time. TryLock ignores WaitAtMost. A loop of short waits gets the
// lock as early as one long wait, also with another reason or label each time.
func WaitAtMost(d time.Duration) Option {
	return optionFunc(func(o *acquireOptions) { o.wait, o.bounded = d, true })
}

// Shared acquires the lock for reading. The lock has up to 1,000 shared holders, or one holder that
// acquired it without this option. A shared contender waits behind earlier exclusive contenders, so
// no writer starves.
func Shared() Option {
	return optionFunc(func(o *acquireOptions) { o.mode = catalog.Shared })
}

// Permits acquires one of n permits, where n is 1 to 1,000. At most n guards of the name exist at a
// time. While a holder or waiter is alive, a call with another number of permits, or without
// Permits, gets a *PermitMismatchError.
func Permits(n int) Option {
	return optionFunc(func(o *acquireOptions) { o.mode, o.limits = catalog.Permit, n })
}

func newAcquireOptions(opts []Option) (acquireOptions, error) {
	o := acquireOptions{want: want{label: "go"}}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: an Option is nil; leave it out", ErrBadOption)
		}
		opt.apply(&o)
	}
	if problem := catalog.BadText(o.why, maxWhy); problem != "" {
		return o, fmt.Errorf("%w: Why %s", ErrBadOption, problem)
	}
	if problem := catalog.BadText(o.label, maxLabel); problem != "" {
		return o, fmt.Errorf("%w: Label %s", ErrBadOption, problem)
	}
	if strings.Contains(o.label, ":") {
		return o, fmt.Errorf("%w: Label contains a colon, which separates the parts of who", ErrBadOption)
	}
	if o.bounded && o.wait < 0 {
		return o, fmt.Errorf("%w: WaitAtMost is negative (%v); use 0 for one try", ErrBadOption, o.wait)
	}
	if o.limits != 0 || o.mode == catalog.Permit {
		if o.limits < 1 || o.limits > catalog.MaxHolders {
			return o, fmt.Errorf("%w: Permits is %d; it must be 1 to %d", ErrBadOption, o.limits,
				catalog.MaxHolders)
		}
		if o.mode != catalog.Permit {
			return o, fmt.Errorf("%w: Shared and Permits exclude each other", ErrBadOption)
		}
		o.limit = int32(o.limits)
	}
	if o.leased && (o.life < time.Millisecond || o.life > catalog.MaxTakeover) {
		return o, fmt.Errorf("%w: Lease is %v; it must be 1ms to %v",
			ErrBadOption, o.life, catalog.MaxTakeover)
	}
	return o, nil
}

func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty; give the lock a name", ErrBadName)
	}
	if problem := catalog.BadText(name, maxName); problem != "" {
		return fmt.Errorf("%w: it %s", ErrBadName, problem)
	}
	return nil
}

func usable(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil; pass context.Background()", ErrBadOption)
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return nil
}

// ended returns the cause of an expired context. The result also matches ctx.Err().
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return &acquireError{text: cause.Error(), causes: []error{cause, err}}
}
