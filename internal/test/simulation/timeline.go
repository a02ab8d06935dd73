package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A timeline lists the events of a run, one per line. Without Schedule.Trace it is empty. It is
// safe for concurrent use.
type timeline struct {
	w *world

	mu    sync.Mutex // guards lines
	lines []string
}

func (l *timeline) add(format string, args ...any) {
	if !l.w.s.Trace {
		return
	}
	line := fmt.Sprintf("%12s  ", l.w.Now().Round(time.Microsecond)) + l.plain(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// plain formats a line. It replaces process ids by letters.
func (l *timeline) plain(format string, args ...any) string {
	s := fmt.Sprintf(format, args...)
	for _, p := range l.w.processes {
		p.mu.Lock()
		for n, id := range p.ids {
			s = strings.ReplaceAll(s, id, fmt.Sprintf("%s.%d", p, n+1))
		}
		p.mu.Unlock()
	}
	return s[:min(len(s), 250)]
}
