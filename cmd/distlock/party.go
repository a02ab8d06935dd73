package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/distlock"
)

// holdersInWords describes the holders of a lock. The text changes only when the holders change.
func holdersInWords(holders []distlock.LockInfo) string {
	first := holders[0]
	if !first.Held {
		return "no process holds it, and processes wait"
	}
	what := "held by "
	switch n := len(holders); {
	case first.Mode == permit:
		what = permits(holders) + " are taken, one by "
	case n > 1:
		what = fmt.Sprintf("held by %d who share it, one is ", n)
	}
	what += shown(short(first.Process), 100)
	if first.Why != "" {
		what += fmt.Sprintf(" (%s)", shown(first.Why, 100))
	}
	what += " since " + instant(first.Since)
	if m := marks(first); len(m) > 0 {
		what += ", " + strings.Join(m, ", ")
	}
	return what
}

// The modes of an exclusive lock and of a semaphore, as in package distlock.
const (
	exclusive = "exclusive"
	permit    = "permit"
)

// permits describes the taken permits of a semaphore.
func permits(holders []distlock.LockInfo) string {
	return fmt.Sprintf("%d of %d permits", len(holders), holders[0].Limit)
}

// milliseconds returns a duration for JSON. It returns nil for a negative duration, which means
// unknown.
func milliseconds(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// duration is the inverse of milliseconds.
func duration(ms *int64) time.Duration {
	if ms == nil {
		return -1
	}
	return time.Duration(*ms) * time.Millisecond
}

// moment returns a time for JSON. It returns nil for the zero time, which means unknown.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return instant(*t)
}

// A problemList has the documents that cannot be parsed, each once.
type problemList []problem

func (l *problemList) add(bad *distlock.MalformedError) {
	if bad == nil {
		return
	}
	if p := problemOf(bad); !slices.Contains(*l, p) {
		*l = append(*l, p)
	}
}
