package virtual

import (
	"slices"
	"time"
)

// An Event is a function that runs at one instant.
type Event struct {
	At    time.Duration
	Owner int // index of a process; -1 for the world
	run   func()
	timer *timer // nil for an event without a timer
	round int
}

// void reports whether the event belongs to a timer that was stopped or reset.
func (e *Event) void() bool { return e.timer != nil && e.timer.void(e.round) }

// An agenda contains the pending events, the earliest first. Simultaneous events are in the order
// in which they were added. World.mu guards it.
type agenda []*Event

func (a *agenda) add(e *Event) {
	i, _ := slices.BinarySearchFunc(*a, e.At, func(other *Event, at time.Duration) int {
		if other.At > at {
			return 1
		}
		return -1
	})
	*a = slices.Insert(*a, i, e)
}

// next returns the events of the earliest instant. It removes void events from the agenda.
func (a *agenda) next() []*Event {
	for len(*a) > 0 {
		at := (*a)[0].At
		n := slices.IndexFunc(*a, func(e *Event) bool { return e.At > at })
		if n < 0 {
			n = len(*a)
		}
		void := slices.IndexFunc((*a)[:n], (*Event).void)
		if void < 0 {
			return (*a)[:n]
		}
		*a = slices.Delete(*a, void, void+1)
	}
	return nil
}
