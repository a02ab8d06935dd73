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
	told        []func(Leader)
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// Metadata is what everybody can read of this candidate and leader, such as its address: at most 1
// KiB of valid UTF-8 without NUL. It stands in the lock document, as the lock's why. Default empty.
func Metadata(text string) Option { return optionFunc(func(o *options) { o.metadata = text }) }

// Backoff is the pause before this candidate stands again after a term that its function ended by
// itself: first after a term without an error, and after failed ones in a row first, twice that,
// and so on to most, each give or take a fifth. Default 1 s and 1 min. After a resignation, a
// hand-over or a loss there is none.
func Backoff(first, most time.Duration) Option {
	return optionFunc(func(o *options) { o.first, o.most = first, most })
}

// Once makes Run return after the first term, with the function's error.
func Once() Option { return optionFunc(func(o *options) { o.once = true }) }

// Lease ends a term whose leader hangs: the function calls [Leadership.Renew] where its work gets
// on, at least every d less the margin of [distlock.Lease], by default three quarters of d. Else
// its context ends, with [distlock.ErrLeaseExpired], and it is the leader no more; another
// candidate leads once it has watched the lease unchanged for d, whether the function has returned
// or not. This candidate stands again when it has. d is 1 ms to 7 days; default none, so that the
// heartbeat of the process is enough.
//
// One command more for a term, and one for each renewal. While the server is too slow for d, see
// [distlock.Lease], no term begins; that is logged, and the candidate stands again after a pause.
func Lease(d time.Duration) Option {
	return optionFunc(func(o *options) { o.lease, o.leased = d, true })
}

// OnNewLeader has fn called with every leader that a reading shows, this process too, as long as
// Run runs: once for each term, within a reading, see [Election.Observe], whose cost it has. fn is
// called in a goroutine of its own, one call at a time; of several leaders that came during a call
// it is told the last. It is not told that nobody leads. A panic of it is logged. No call begins
// after Run has returned; one that is under way is not waited for. client-go: OnNewLeader.
func OnNewLeader(fn func(Leader)) Option {
	return optionFunc(func(o *options) { o.told = append(o.told, fn) })
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
	for _, fn := range o.told {
		if fn == nil {
			return o, fmt.Errorf("%w: the function given to OnNewLeader is nil", distlock.ErrBadOption)
		}
	}
	return o, nil
}

// lock are the options of the lock.
func (o options) lock() []distlock.Option {
	all := []distlock.Option{distlock.Why(o.metadata), distlock.Label(label)}
	if o.leased {
		all = append(all, distlock.Lease(o.lease))
	}
	return all
}

// pause is the pause after so many failed terms in a row.
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
