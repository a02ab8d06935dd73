package election

import (
	"fmt"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// An Option adjusts one Run.
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

// Metadata sets a public text of this candidate and leader, such as its address: at most 1 KiB of
// valid UTF-8 without NUL. It is stored in the field "why" of the lock document. Default empty.
func Metadata(text string) Option { return optionFunc(func(o *options) { o.metadata = text }) }

// Backoff sets the pause after a term that the function ended. After the pause the candidate queues
// again. The first pause is the argument first. It doubles with every consecutive failed term, up
// to the argument most, and varies randomly by a fifth. The defaults are 1 s and 1 min. There is no
// pause after a resignation, a hand-over or a loss.
func Backoff(first, most time.Duration) Option {
	return optionFunc(func(o *options) { o.first, o.most = first, most })
}

// Once makes Run return after the first term, with the function's error.
func Once() Option { return optionFunc(func(o *options) { o.once = true }) }

// Lease ends the term of a leader that hangs. The function calls [distlock.TryGuard.Renew] where
// its work makes progress. It must do so at least once in d minus the margin of [distlock.Lease],
// by default in three quarters of d. Otherwise its context ends with [distlock.ErrLeaseExpired].
// Another candidate leads after it has watched the unchanged lease for d, even if the function
// still runs. The former leader queues again when its function has returned. The duration d must be
// 1 ms to 7 days. By default there is no lease.
//
// A lease costs one more command for a term, and one for each renewal. If the server is too slow
// for d, no term begins, see [distlock.Lease]. Run logs that, and the candidate queues again after
// a pause.
func Lease(d time.Duration) Option {
	return optionFunc(func(o *options) { o.lease, o.leased = d, true })
}

// OnNewLeader calls fn with every new leader, this process included, while Run runs. It reads the
// leader as [Election.Observe] does. It calls fn in another goroutine, once for each term. If the
// leader changes several times during a call, only the last leader is reported. fn is not called
// when there is no leader. A panic in fn is logged. No call begins after Run has returned, but Run
// does not wait for a call in progress. The name is that of client-go's option.
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
			"second, and that at most ten years", distlock.ErrBadOption, o.first, o.most)
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
	for range failures - 1 {
		if pause *= 2; pause >= o.most {
			pause = o.most
			break
		}
	}
	return time.Duration(float64(pause) * (0.8 + 0.4*clock.Chance(c)))
}
