package simulation

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// An event is something that happens at one instant.
type event struct {
	at    time.Duration
	owner int // index of the process, -1 for the world
	seq   int
	run   func()
	timer *timer // nil if it is no timer's
	round int
}

// void reports whether it is the event of a timer that was stopped or set anew.
func (e *event) void() bool { return e.timer != nil && e.timer.void(e.round) }

// An agenda is the events to come, the earliest first. The caller guards it.
type agenda struct {
	events eventHeap
	seq    int
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

func (a *agenda) add(e *event) {
	a.seq++
	e.seq = a.seq
	heap.Push(&a.events, e)
}

// next returns when the earliest event is due.
func (a *agenda) next() (time.Duration, bool) {
	for len(a.events) > 0 && a.events[0].void() {
		heap.Pop(&a.events)
	}
	if len(a.events) == 0 {
		return 0, false
	}
	return a.events[0].at, true
}

// take removes the event that choose picks among those due at the earliest instant. There is one.
func (a *agenda) take(choose func([]*event) int) *event {
	first := heap.Pop(&a.events).(*event)
	if len(a.events) == 0 || a.events[0].at != first.at {
		return first
	}
	due := []*event{first}
	for len(a.events) > 0 && a.events[0].at == first.at {
		if e := heap.Pop(&a.events).(*event); !e.void() {
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

// choose settles who is first among the events of one instant: by the choices of the schedule, then
// by its seed, then in the order of processes. Events of one process keep their order, unless there
// is a seed.
func (w *world) choose(due []*event) int {
	heads := make([]int, 0, len(due))
	for i, e := range due {
		if !slices.ContainsFunc(heads, func(h int) bool { return due[h].owner == e.owner }) {
			heads = append(heads, i)
		}
	}
	slices.SortFunc(heads, func(a, b int) int { return cmp.Compare(due[a].owner, due[b].owner) })
	pick := 0
	if len(heads) > 1 {
		n := len(w.options)
		w.options = append(w.options, len(heads))
		w.when = append(w.when, due[0].at)
		switch {
		case n < len(w.s.Choices):
			pick = w.s.Choices[n] % len(heads)
		case w.s.Seed != 0:
			pick = int(w.chance("order", due[0].at, uint64(n)) % uint64(len(heads)))
		}
	}
	head := heads[pick]
	if w.s.Seed == 0 {
		return head
	}
	own := make([]int, 0, len(due))
	for i, e := range due {
		if e.owner == due[head].owner {
			own = append(own, i)
		}
	}
	return own[w.chance("own order", due[0].at, uint64(due[head].owner+1))%uint64(len(own))]
}

// chance is a number that depends on the seed and the arguments alone, so that leaving one fault
// out changes as little as possible of what else happens.
func (w *world) chance(what string, at time.Duration, n uint64) uint64 {
	h := w.s.Seed*0x9e3779b97f4a7c15 + uint64(at)*0xbf58476d1ce4e5b9 + n*0x94d049bb133111eb
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
