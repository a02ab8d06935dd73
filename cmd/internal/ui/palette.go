package ui

import (
	"hash/fnv"
	"slices"
	"sync"
)

// colors is the number of colors. The style sheet has the same number.
const colors = 16

// maxColored is the maximum number of processes with a remembered color.
const maxColored = 5_000

// A palette assigns colors to processes. A process keeps its color until it appears next to another
// process with the same color in a queue or in a lock's timeline.
type palette struct {
	mu sync.Mutex // guards of
	of map[string]int
}

// color returns the color of a process. It changes the color if another of the given processes,
// which appear next to it, has the same color.
func (p *palette) color(process string, others ...string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= maxColored {
		p.of = map[string]int{}
	}
	c := p.get(process)
	taken := func(other string) bool { return other != process && p.get(other) == c }
	for slices.ContainsFunc(others, taken) { // there are more colors than others
		c = (c + 1) % colors
	}
	p.of[process] = c
	return c
}

// get returns the color of a process. The caller holds mu.
func (p *palette) get(process string) int {
	c, known := p.of[process]
	if !known {
		h := fnv.New32a()
		_, _ = h.Write([]byte(process)) // never fails
		c = int(h.Sum32() % colors)
	}
	return c
}

// distinctWaiters is the number of waiters whose colors must differ from the color of the first
// holder.
const distinctWaiters = 6

// ofLock gives adjacent holders and waiters of a lock different colors. The first distinctWaiters
// waiters also differ in color from the first holder.
func (p *palette) ofLock(k *lock) {
	if !k.Held() {
		return
	}
	all := slices.Concat(k.Holders, k.Queue)
	for i, one := range all[1:] {
		others := []string{all[i].Process}
		if waiter := i + 1 - len(k.Holders); waiter >= 0 && waiter < distinctWaiters {
			others = append(others, all[0].Process)
		}
		p.color(one.Process, others...)
	}
}
