package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A timeline lists the events of a run, one per line. It omits details that differ between two runs
// of a schedule. Without Schedule.Trace it is empty.
type timeline struct {
	w *world

	mu        sync.Mutex // guards the rest
	lines     []string
	userLines []string // lines of users since the last event
	ended     bool     // later lines are dropped
}

func (l *timeline) add(format string, args ...any) {
	if l.w.s.Trace {
		l.flush()
		l.put(&l.lines, format, args)
	}
}

// addUser adds a line for a user's goroutine. These lines are sorted, because one event may wake
// several users in any order.
func (l *timeline) addUser(format string, args ...any) {
	if l.w.s.Trace {
		l.put(&l.userLines, format, args)
	}
}

func (l *timeline) put(to *[]string, format string, args []any) {
	line := fmt.Sprintf("%12s  ", l.w.Now().Round(time.Microsecond)) + l.plain(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		*to = append(*to, line)
	}
}

func (l *timeline) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.userLines)
	l.lines = append(l.lines, l.userLines...)
	l.userLines = nil
}

func (l *timeline) end() {
	l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// randomPart matches the random end of the field named who.
var randomPart = regexp.MustCompile(`:[0-9a-f]{8}\b`)

// plain formats a line. It replaces process ids by letters and deletes random parts.
func (l *timeline) plain(format string, args ...any) string {
	s := fmt.Sprintf(format, args...)
	for _, p := range l.w.processes {
		p.mu.Lock()
		for n, id := range p.ids {
			s = strings.ReplaceAll(s, id, fmt.Sprintf("%s.%d", p, n+1))
		}
		p.mu.Unlock()
	}
	s = randomPart.ReplaceAllString(s, "")
	return s[:min(len(s), 250)]
}
