package ui

import (
	"time"

	"mongodlm/cmd/internal/words"
)

// A reading is what was read of the server, or why nothing was. A page is made of it by [contentOf]
// only: of what was never read there is no value, so no page can say a figure or "none" of it.
type reading[T any] struct {
	value   T
	at      time.Time // this machine's clock; zero when it was never read
	tried   time.Time // the latest try, whatever came of it
	problem string    // why that failed; empty when it read the value
}

// next is the reading after another try. What was read before is kept, as of then.
func (r reading[T]) next(value T, problem string, now time.Time) reading[T] {
	if problem != "" {
		return reading[T]{r.value, r.at, now, problem}
	}
	return reading[T]{value, now, now, ""}
}

// old is how old the value was at the latest try, if that failed; 0 when it is of that try, or
// none.
func (r reading[T]) old() time.Duration {
	if r.problem == "" || r.at.IsZero() {
		return 0
	}
	return max(r.tried.Sub(r.at), 1)
}

// A content is what a page shows of a reading.
type content struct {
	Known   bool // else nothing was read, and there are no data
	Data    any
	AsOf    string // when it was read, if it could not be read again
	Problem string // why it could not be read at the latest try
}

// contentOf shows a reading. show is called only with what was read.
func contentOf[T any](r reading[T], show func(T) any) content {
	c := content{Problem: r.problem}
	if !r.at.IsZero() {
		c.Known, c.Data = true, show(r.value)
	}
	if old := r.old(); old > 0 {
		c.AsOf = "as of " + r.at.UTC().Format("15:04:05") + " UTC, " + words.Age(old) + " ago"
	}
	return c
}

// itself shows a value as it is.
func itself[T any](value T) any { return value }
