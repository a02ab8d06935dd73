package virtual

import (
	"container/heap"
	"time"
)

// An Event is a function that runs at one instant.
type Event struct {
	At    time.Duration
	Owner int // index of a process; -1 for the world
	seq   int
	run   func()
	timer *timer // nil for an event without a timer
	round int
}

// void reports whether the event belongs to a timer that was stopped or reset.
func (e *Event) void() bool { return e.timer != nil && e.timer.void(e.round) }

// An agenda contains the pending events, the earliest first. World.mu guards it.
type agenda struct {
	events eventHeap
	seq    int
}

type eventHeap []*Event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].At < h[j].At || h[i].At == h[j].At && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*Event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

func (a *agenda) add(e *Event) {
	a.seq++
	e.seq = a.seq
	heap.Push(&a.events, e)
}

// next returns the time of the earliest event, and false if there is no event.
func (a *agenda) next() (time.Duration, bool) {
	for len(a.events) > 0 && a.events[0].void() {
		heap.Pop(&a.events)
	}
	if len(a.events) == 0 {
		return 0, false
	}
	return a.events[0].At, true
}

// take removes one event of the earliest instant and returns it. If several events have this
// instant, choose selects one. The agenda must not be empty.
func (a *agenda) take(choose func([]*Event) int) *Event {
	first := heap.Pop(&a.events).(*Event)
	if choose == nil || len(a.events) == 0 || a.events[0].At != first.At {
		return first
	}
	due := []*Event{first}
	for len(a.events) > 0 && a.events[0].At == first.At {
		if e := heap.Pop(&a.events).(*Event); !e.void() {
			due = append(due, e)
		}
	}
	i := choose(due)
	for j, e := range due {
		if j != i {
			heap.Push(&a.events, e)
		}
	}
	return due[i]
}
