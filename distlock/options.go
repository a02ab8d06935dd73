package distlock

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what a caller may pass.
const (
	MaxNameBytes = 1024
	MaxWhyBytes  = 1024
	maxLabel     = 128
)

// An Option adjusts one acquisition.
type Option interface{ apply(*acquireOptions) }

type acquireOptions struct {
	why     string
	label   string
	wait    time.Duration
	bounded bool
}

type optionFunc func(*acquireOptions)

func (f optionFunc) apply(o *acquireOptions) { f(o) }

// Why records the reason in the lock document, at most 1 KiB of valid UTF-8 without NUL. Default
// empty. mongos: the argument of lock_try.
func Why(reason string) Option { return optionFunc(func(o *acquireOptions) { o.why = reason }) }

// Label names the caller inside its process, for the field who, at most 128 bytes without a
// colon. Default "go"; mongos wrote the thread's name.
func Label(label string) Option { return optionFunc(func(o *acquireOptions) { o.label = label }) }

// WaitAtMost bounds how long [DistributedLock.Lock] and [Manager.Do] wait for a lock that somebody
// else holds; then the error matches [ErrHeld]. Zero means one try. Without it they wait until
// their context ends. TryLock never waits and ignores it.
func WaitAtMost(d time.Duration) Option {
	return optionFunc(func(o *acquireOptions) { o.wait, o.bounded = d, true })
}

func newAcquireOptions(opts []Option) (acquireOptions, error) {
	o := acquireOptions{label: "go"}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: an Option is nil; leave it out", ErrBadOption)
		}
		opt.apply(&o)
	}
	if problem := badText(o.why, MaxWhyBytes); problem != "" {
		return o, fmt.Errorf("%w: Why %s", ErrBadOption, problem)
	}
	if problem := badText(o.label, maxLabel); problem != "" {
		return o, fmt.Errorf("%w: Label %s", ErrBadOption, problem)
	}
	if strings.Contains(o.label, ":") {
		return o, fmt.Errorf("%w: Label contains a colon, which separates the parts of who", ErrBadOption)
	}
	if o.bounded && o.wait < 0 {
		return o, fmt.Errorf("%w: WaitAtMost is negative (%v); use 0 for one try", ErrBadOption, o.wait)
	}
	return o, nil
}

func badText(s string, limit int) string {
	switch {
	case len(s) > limit:
		return fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "contains a NUL byte"
	}
	return ""
}

func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty; give the lock a name", ErrBadName)
	}
	if problem := badText(name, MaxNameBytes); problem != "" {
		return fmt.Errorf("%w: it %s", ErrBadName, problem)
	}
	return nil
}
