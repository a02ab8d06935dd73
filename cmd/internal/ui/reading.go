package ui

import (
	"time"

	"mongodlm/cmd/internal/words"
)

// A reading is a value that was read from the server, or the reason why the read failed, or both.
// Only [contentOf] makes a page from it. A reading that never succeeded has no value, so no page
// shows a figure or "none" for it.
type reading[T any] struct {
	value   T
	at      time.Time // by this machine's clock; zero before the first success
	tried   time.Time // the latest attempt, successful or not
	problem string    // the error of the latest attempt; empty after a success
}

// next returns the reading after another attempt. After a failure it keeps the earlier value and
// its time.
func (r reading[T]) next(value T, problem string, now time.Time) reading[T] {
	if problem != "" {
		return reading[T]{r.value, r.at, now, problem}
	}
	return reading[T]{value, now, now, ""}
}

// old returns the age of the value if the latest attempt failed. It returns 0 after a success or
// without a value.
func (r reading[T]) old() time.Duration {
	if r.problem == "" || r.at.IsZero() {
		return 0
	}
	return max(r.tried.Sub(r.at), 1)
}

// A content is the display of a reading.
type content struct {
	Known   bool // false without a value; then Data is empty
	Data    any
	AsOf    string // the time of the read, if the latest attempt failed
	Problem string // the error of the latest attempt
}

// contentOf returns the display of a reading. It calls show only with a value that was read.
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

func itself[T any](value T) any { return value }
