package election

import (
	"fmt"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// An Option configures one call of Run.
type Option interface{ apply(*options) }

type options struct {
	metadata    string
	first, most time.Duration
	once        bool
	lease       time.Duration
	leased      bool
	onLeader    []func(Leader)
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// Metadata sets the public text of this candidate, such as its address. The text is at most 1 KiB
// of valid UTF-8 without NUL. The field "why" of the lock document stores it. Default empty.
func Metadata(text string) Option { return optionFunc(func(o *options) { o.metadata = text }) }

// Backoff sets the pause between the return of the leader's function and the next wait of this
// candidate. The first argument is the first pause, by default 1 s. The pause doubles with every
// consecutive failed term. The second argument is the longest pause, by default 1 min. The pause
// varies randomly by a fifth. There is no pause after a resignation, a hand-over or a loss.
func Backoff(first, most time.Duration) Option {
	return optionFunc(func(o *options) { o.first, o.most = first, most })
}

// Once makes Run return after the first term, with the function's error.
func Once() Option { return optionFunc(func(o *options) { o.once = true }) }

// Lease ends the term of a leader that hangs. The function must call [distlock.TryGuard.Renew]
// where its work makes progress. The time between two calls may be at most d minus the margin of
// [distlock.Lease]. By default this is three quarters of d. If the function is late, its context
// ends with [distlock.ErrLeaseExpired]. Another candidate leads when it has watched the unchanged
// lease for d, even if the function still runs. The former leader queues again when its function
// has returned. d must be 1 ms to 7 days. By default there is no lease.
//
// A lease costs one more command for each term, and one for each renewal. If the server is too slow
// for d, no term begins, see [distlock.Lease]. Run logs this error, and the candidate queues again
// after a pause.
func Lease(d time.Duration) Option {
	return optionFunc(func(o *options) { o.lease, o.leased = d, true })
}

// OnNewLeader calls fn with every new leader while Run runs, even if the leader is this process. It
// reads the leader as [Election.Observe] does. It calls fn in another goroutine, once for each
// term. If the leader changes several times during a call, OnNewLeader reports only the last
// leader. It does not call fn if there is no leader. It logs a panic in fn. After Run has returned,
// no new call begins. Run does not wait for a call in progress. client-go has an option with the
// same name.
func OnNewLeader(fn func(Leader)) Option {
	return optionFunc(func(o *options) { o.onLeader = append(o.onLeader, fn) })
}

func newOptions(opts []Option) (options, error) {
	o := options{first: time.Second, most: time.Minute}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: an Option is nil; leave it out", distlock.ErrBadOption)
		}
		opt.apply(&o)
	}
	const longest = 10 * 366 * 24 * time.Hour
	if o.first <= 0 || o.most < o.first || o.most > longest {
		return o, fmt.Errorf("%w: Backoff is %v to %v; the first must be above 0 and at most the "+
			"second, which must be at most ten years", distlock.ErrBadOption, o.first, o.most)
	}
	if o.leased && (o.lease < time.Millisecond || o.lease > catalog.MaxTakeover) {
		return o, fmt.Errorf("%w: Lease is %v; it must be 1ms to %v", distlock.ErrBadOption, o.lease,
			catalog.MaxTakeover)
	}
	for _, fn := range o.onLeader {
		if fn == nil {
			return o, fmt.Errorf("%w: the function given to OnNewLeader is nil", distlock.ErrBadOption)
		}
	}
	return o, nil
}

func (o options) lock() []distlock.Option {
	all := []distlock.Option{distlock.Why(o.metadata), distlock.Label(label)}
	if o.leased {
		all = append(all, distlock.Lease(o.lease))
	}
	return all
}

// pause returns the pause after the given number of consecutive failed terms.
func (o options) pause(c clock.Clock, failures int) time.Duration {
	pause := o.first
	for n := 1; n < failures && pause < o.most; n++ {
		pause *= 2
	}
	return time.Duration(float64(min(pause, o.most)) * (0.8 + 0.4*clock.Chance(c)))
}
