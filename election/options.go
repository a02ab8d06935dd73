package election

import (
	"fmt"
	"math/rand/v2"
	"time"

	"mongodlm/distlock"
)

// An Option adjusts one Run.
type Option interface{ apply(*options) }

type options struct {
	metadata    string
	first, most time.Duration
	once        bool
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
		return o, fmt.Errorf("%w: Backoff is %v to %v; the first must be above 0 and at most the second, and that at most "+
			"ten years", distlock.ErrBadOption, o.first, o.most)
	}
	return o, nil
}

// pause is the pause after so many failed terms in a row.
func (o options) pause(failures int) time.Duration {
	pause := o.first
	for range failures - 1 {
		if pause *= 2; pause >= o.most {
			pause = o.most
			break
		}
	}
	return time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64()))
}
