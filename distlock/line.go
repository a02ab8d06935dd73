package distlock

import (
	"slices"
	"sync"
)

// lines are the waiters of this Manager, one line for each lock name. Only the first of a line
// looks at the server; the others stand behind it, in the order in which they came. So any number
// of waiters for one lock costs what one does, and inside a process it is first come, first served.
type lines struct {
	mu sync.Mutex // guards of
	of map[string][]*place
}

// A place is one waiter's.
type place struct {
	turn chan struct{} // closed when it is the first
}

// join takes the last place.
func (l *lines) join(name string) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string][]*place{}
	}
	p := &place{turn: make(chan struct{})}
	l.of[name] = append(l.of[name], p)
	if len(l.of[name]) == 1 {
		close(p.turn)
	}
	return p
}

// leave gives a place up. If it was the first, the next one has its turn.
func (l *lines) leave(name string, p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.of[name]
	i := slices.Index(line, p)
	line = slices.Delete(line, i, i+1)
	switch {
	case len(line) == 0:
		delete(l.of, name)
		return
	case i == 0:
		close(line[0].turn)
	}
	l.of[name] = line
}
