package simulation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"mongodlm/catalog"
)

// A timeline is the list of events, one line each. It omits details that differ between two runs of
// one schedule.
type timeline struct {
	w *world

	mu    sync.Mutex // guards the rest
	lines []string
	news  []string // lines of users since the last event
	ended bool     // later lines are dropped
}

func (l *timeline) end() {
	l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// add appends a line of the world's loop.
func (l *timeline) add(format string, args ...any) {
	if !l.w.s.Trace {
		return
	}
	l.flush()
	line := l.line(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.lines = append(l.lines, line)
	}
}

// told adds a line of a user. One event may wake several users, so their lines are sorted before
// the next line of the loop.
func (l *timeline) told(format string, args ...any) {
	if !l.w.s.Trace {
		return
	}
	line := l.line(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.news = append(l.news, line)
	}
}

func (l *timeline) line(format string, args ...any) string {
	return l.plain(fmt.Sprintf("%12s  ", l.w.Now().Round(time.Microsecond)) +
		fmt.Sprintf(format, args...))
}

// flush sorts and adds the lines of users.
func (l *timeline) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.news)
	l.lines = append(l.lines, l.news...)
	l.news = nil
}

// plain replaces process ids by letters.
func (l *timeline) plain(s string) string {
	for _, p := range l.w.lives {
		p.mu.Lock()
		for n, id := range p.ids {
			s = strings.ReplaceAll(s, id, fmt.Sprintf("%s.%d", p, n+1))
		}
		p.mu.Unlock()
	}
	return s
}

func (l *timeline) subject(c *call) string {
	if c.subject == "" {
		return ""
	}
	return fmt.Sprintf(" %q", c.subject)
}

func (l *timeline) reply(c *call, err error) {
	took := ""
	if d := l.w.Now() - c.sent; d > 0 {
		took = fmt.Sprintf(" (sent %v before)", d.Round(time.Microsecond))
	}
	note := ""
	if c.note != "" {
		note = " [" + c.note + "]"
	}
	l.add("%s %-12s %s: %s%s%s", c.p, c.op, l.subject(c), c.answer(err), took, note)
}

func (l *timeline) applied(c *call, err error) {
	l.add("%s %-12s %s is applied: %s [%s]", c.p, c.op, l.subject(c), c.answer(err), c.note)
}

func (l *timeline) look(look catalog.Snapshot) string {
	switch {
	case look.LockErr != nil:
		return "malformed"
	case look.Lock == nil:
		return "no document"
	case !look.Lock.Held:
		return fmt.Sprintf("free, fence %d", look.Lock.Fence)
	}
	s := fmt.Sprintf("held by %s, fence %d", look.Lock.Process, look.Lock.Fence)
	switch p := look.Ping; {
	case p == nil:
		return s + ", no ping"
	case p.Condemned != nil:
		return s + ", condemned by " + p.Condemned.By
	case p.HasSeq:
		return s + fmt.Sprintf(", seq %d", p.Seq)
	default:
		return s + ", ping of " + p.At.Sub(epoch).String()
	}
}

// randomPart is the end of the field who.
var randomPart = regexp.MustCompile(`:[0-9a-f]{8}\b`)

func (l *timeline) failed(u *User, name string, err error) {
	if !l.w.s.Trace {
		return
	}
	text := randomPart.ReplaceAllString(l.plain(err.Error()), "")
	if len(text) > 160 {
		text = text[:160] + "..."
	}
	l.told("%s does not get %q: %s", u.p, name, text)
}
