package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"mongodlm/internal/clock"
)

// Escapes that every terminal of the last decades knows.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	firstScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// onTerminal draws readings on the alternate screen of a terminal.
type onTerminal struct {
	out    *os.File
	in     *os.File // of keys; nil when none are heard
	every  time.Duration
	hosts  string
	sieve  sieve
	last   listing   // that was read
	at     time.Time // of it
	tried  time.Time
	failed error // of the latest try
	from   int   // the first line that is shown below the heading
	modes  *term.State

	mu    sync.Mutex // one at a time draws, or gives the terminal away; guards drawn
	drawn string     // the latest frame
}

func (t *onTerminal) enter() {
	if t.in != nil {
		t.modes, _ = term.MakeRaw(int(t.in.Fd())) // nil: keys come with the end of a line
	}
	_, _ = io.WriteString(t.out, otherScreen+t.drawn) // draw tells what fails
}

func (t *onTerminal) leave() {
	_, _ = io.WriteString(t.out, firstScreen)
	if t.modes != nil {
		_ = term.Restore(int(t.in.Fd()), t.modes) // nothing is left to do
	}
}

// yield gives the terminal back while others have it.
func (t *onTerminal) yield(others func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
	others()
	t.enter()
}

func (t *onTerminal) draw(at time.Time, now listing, failed error) error {
	if t.tried, t.failed = at, failed; failed == nil {
		t.last, t.at = now, at
	}
	return t.redraw()
}

// redraw shows what was read last.
func (t *onTerminal) redraw() error {
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = unknownWidth, unknownHeight
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drawn, t.from = frame(t.text(t.tried, t.failed, width), width, height, t.from)
	_, err = io.WriteString(t.out, t.drawn)
	return err
}

// rest waits for the next reading, and moves along the text as a person types. ended is true when
// that person has had enough.
func (t *onTerminal) rest(ctx context.Context, timer clock.Timer, keys <-chan string) (ended bool,
	err error) {
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
			return false, nil
		case <-ctx.Done():
			return false, nil
		case key := <-keys:
			if key == "q" {
				return true, nil
			}
			t.from = scrolled(t.from, key)
			if err := t.redraw(); err != nil {
				return true, err
			}
		}
	}
}

// scrolled is where a key leads to. Lines before the first and after the last are none.
func scrolled(from int, key string) int {
	const page, all = 10, 1 << 20
	switch key {
	case "j", "\x1b[B", "\r":
		return from + 1
	case "k", "\x1b[A":
		return from - 1
	case " ", "f", "\x1b[6~":
		return from + page
	case "b", "\x1b[5~":
		return from - page
	case "g", "\x1b[H":
		return 0
	case "G", "\x1b[F":
		return all
	}
	return from
}

// unknownHeight is that of a terminal which does not tell its own.
const unknownHeight = 24

// text is all that there is to show, however long.
func (t *onTerminal) text(at time.Time, failed error, width int) string {
	var b bytes.Buffer
	how := layout{width: width, other: "distlock locks "}
	l := t.last
	fmt.Fprintf(&b, "%s  %d held, %d waiting  %s\n", at.Format(time.TimeOnly), l.count(),
		len(l.Line.Waiters), t.hosts)
	t.sieve.sift(&l)
	switch {
	case failed != nil && t.at.IsZero():
		wrap(&b, how, failed.Error(), "")
		return b.String()
	case failed != nil:
		wrap(&b, how, fmt.Sprintf("as of %s: %v", t.at.Format(time.TimeOnly), failed), "")
	}
	fmt.Fprintln(&b)
	l.print(&b, how)
	ends := "Ctrl-C ends"
	if t.in != nil {
		ends = "j and k, space and b, g and G move; q ends"
	}
	fmt.Fprintf(&b, "\nevery %v; %s\n", t.every, ends)
	return b.String()
}

// frame draws a text over the one before, cut to the terminal: below its first line those from one
// on. It returns from which on it does.
func frame(text string, width, height, from int) (drawn string, first int) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if over := len(lines) - height; over > 0 && height > 2 {
		first = max(0, min(from, over+1))
		room := height - 2
		told := fmt.Sprintf("(lines %d to %d of %d)", first+1, first+room, len(lines)-1)
		lines = append(append(lines[:1:1], lines[1+first:1+first+room]...), told)
	} else if over > 0 {
		lines = append(lines[:height-1], fmt.Sprintf("(%d lines more)", over+1))
	}
	for i, line := range lines {
		lines[i] = cutTo(line, width) + clearLine
	}
	return home + strings.Join(lines, "\r\n") + clearBelow, first
}

// split tells the keys of what was read apart: an escape stands before those that have no letter.
func split(text string) (keys []string) {
	for text != "" {
		n := 1
		if strings.HasPrefix(text, "\x1b[") {
			n = 2 +
				strings.IndexFunc(text[2:], func(r rune) bool { return r == '~' || r >= 'A' && r <= 'Z' }) + 1
			if n < 3 {
				n = len(text)
			}
		}
		keys, text = append(keys, text[:n]), text[n:]
	}
	return keys
}
