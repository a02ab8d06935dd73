package ui

import (
	"hash/fnv"
	"sync"

	"mongodlm/distlock"
)

// colors is the number of colors. The style sheet has the same number.
const colors = 16

// maxColored is the maximum number of processes with a remembered color.
const maxColored = 5_000

// A palette assigns colors to processes. A process keeps its color until it appears next to another
// process with the same color in a queue or in a lock's timeline.
type palette struct {
	mu        sync.Mutex // guards the rest
	of        map[string]int
	neighbors map[string]map[string]bool
}

func (p *palette) color(process string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(process)
}

// get returns the color of a process. The caller holds mu.
func (p *palette) get(process string) int {
	if c, known := p.of[process]; known {
		return c
	}
	if p.of == nil || len(p.of) >= maxColored {
		p.of, p.neighbors = map[string]int{}, map[string]map[string]bool{}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(process)) // never fails
	c := int(h.Sum32() % colors)
	p.of[process] = c
	return c
}

// separate gives two adjacent processes different colors.
func (p *palette) separate(one, other string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one == other || one == "" || other == "" {
		return
	}
	taken, mine := p.get(one), p.get(other)
	for _, pair := range [][2]string{{one, other}, {other, one}} {
		if p.neighbors[pair[0]] == nil {
			p.neighbors[pair[0]] = map[string]bool{}
		}
		if len(p.neighbors[pair[0]]) < colors {
			p.neighbors[pair[0]][pair[1]] = true
		}
	}
	if taken != mine {
		return
	}
	used := map[int]bool{}
	for n := range p.neighbors[other] {
		used[p.get(n)] = true
	}
	next := (mine + 1) % colors
	for c := next; c != mine; c = (c + 1) % colors {
		if !used[c] {
			next = c
			break
		}
	}
	p.of[other] = next
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
	var last distlock.LockInfo
	for i, one := range append(k.Holders[:len(k.Holders):len(k.Holders)], k.Queue...) {
		p.separate(last.Process, one.Process)
		if at := i - len(k.Holders); at >= 0 && at < distinctWaiters {
			p.separate(k.Holders[0].Process, one.Process)
		}
		last = one
	}
}
