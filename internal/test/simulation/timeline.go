package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A timeline is the list of events, one line each. It omits details that differ between two runs of
// one schedule. It is empty unless the schedule sets Trace.
type timeline struct {
	w *world

	mu    sync.Mutex // guards the rest
	lines []string
	news  []string // lines of users since the last event
	ended bool     // later lines are dropped
}

// add appends a line of the world's loop.
func (l *timeline) add(format string, args ...any) {
	if l.w.s.Trace {
		l.flush()
		l.put(&l.lines, format, args)
	}
}

// told adds a line of a user. One event may wake several users, so their lines are sorted before
// the next line of the loop.
func (l *timeline) told(format string, args ...any) {
	if l.w.s.Trace {
		l.put(&l.news, format, args)
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

// flush sorts and adds the lines of users.
func (l *timeline) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.news)
	l.lines = append(l.lines, l.news...)
	l.news = nil
}

func (l *timeline) end() {
	l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// randomPart is the end of the field who.
var randomPart = regexp.MustCompile(`:[0-9a-f]{8}\b`)

// plain formats a line, and replaces process ids by letters.
func (l *timeline) plain(format string, args ...any) string {
	s := fmt.Sprintf(format, args...)
	for _, p := range l.w.lives {
		p.mu.Lock()
		for n, id := range p.ids {
			s = strings.ReplaceAll(s, id, fmt.Sprintf("%s.%d", p, n+1))
		}
		p.mu.Unlock()
	}
	s = randomPart.ReplaceAllString(s, "")
	return s[:min(len(s), 250)]
}
