package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"mongodlm/internal/clock"
)

// watching shows locks and lines again and again. It only reads.
type watching struct {
	connection
	every time.Duration
	json  bool
}

func (v *watching) flags(f *pflag.FlagSet) {
	v.connection.flags(f)
	f.DurationVar(&v.every, "every", time.Second, "the `time` between two readings, 100ms to 1h")
	f.BoolVar(&v.json, "json", false, "print a JSON object, in a line of its own, for every change")
}

func (v *watching) accept(c call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	if v.every < 100*time.Millisecond || v.every > time.Hour {
		return fmt.Errorf("--every is %v, must be 100ms to 1h", v.every)
	}
	return v.connection.accept(c)
}

// run shows one screen on a terminal and a line for each change elsewhere, until it is interrupted.
func (v *watching) run(ctx context.Context, s stdio) error {
	st, err := v.connection.open(ctx, 0, zerolog.Nop())
	if err != nil {
		return err
	}
	defer st.close()
	show := (&diary{out: s.out, errOut: s.errOut, json: v.json}).tell
	clk := clock.From(ctx)
	if out, ok := s.out.(*os.File); ok && isTerminal(s.out) && !v.json && os.Getenv("TERM") != "dumb" {
		screen := &onTerminal{out: out, every: v.every, hosts: v.hosts()}
		screen.enter()
		defer screen.leave()
		defer whenStopped(clk, screen.yield)()
		show = screen.draw
	}
	for {
		now, err := v.look(ctx, st)
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		if err != nil {
			err = errors.New(redact(v.explain(err).Error(), v.uri))
		}
		if err := show(clk.Now().Wall, now, err); err != nil {
			return err // nobody reads any more
		}
		if !clock.Sleep(clk, v.every, ctx.Done()) {
			return stopped(ctx)
		}
	}
}

// stopped tells a person's Ctrl-C, which is the way to end it, from other ends.
func stopped(ctx context.Context) error {
	var i interrupted
	if cause := context.Cause(ctx); !errors.As(cause, &i) {
		return cause
	}
	return nil
}

func (v *watching) look(ctx context.Context, st *store) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	l := newListing(v.database)
	free, err := l.gather(ctx, st, true)
	if len(l.Locks) == 0 {
		l.void = fmt.Sprintf("no lock is held in database %q; free: %d", v.database, free)
	}
	return l, err
}

// lookLimit bounds a reading, so that the screen says soon that the server does not answer.
const lookLimit = 10 * time.Second

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
	out   *os.File
	every time.Duration
	hosts string
	last  listing   // that was read
	at    time.Time // of it

	mu    sync.Mutex // one at a time draws, or gives the terminal away; guards drawn
	drawn string     // the latest frame
}

func (t *onTerminal) enter() { _, _ = io.WriteString(t.out, otherScreen+t.drawn) } // draw tells what fails
func (t *onTerminal) leave() { _, _ = io.WriteString(t.out, firstScreen) }

// yield gives the terminal back while others have it.
func (t *onTerminal) yield(others func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave()
	others()
	t.enter()
}

func (t *onTerminal) draw(at time.Time, now listing, failed error) error {
	if failed == nil {
		t.last, t.at = now, at
	}
	width, height, err := term.GetSize(int(t.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = unknownWidth, unknownHeight
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drawn = frame(t.text(at, failed, width), width, height)
	_, err = io.WriteString(t.out, t.drawn)
	return err
}

// unknownHeight is that of a terminal which does not tell its own.
const unknownHeight = 24

// text is all that there is to show, however long.
func (t *onTerminal) text(at time.Time, failed error, width int) string {
	var b bytes.Buffer
	how := layout{width: width}
	l := t.last
	fmt.Fprintf(&b, "%s  %d held, %d waiting  %s\n", at.Format(time.TimeOnly), len(l.Locks), len(l.Line.Waiters),
		t.hosts)
	switch {
	case failed != nil && t.at.IsZero():
		wrap(&b, how, failed.Error(), "")
		return b.String()
	case failed != nil:
		wrap(&b, how, fmt.Sprintf("as of %s: %v", t.at.Format(time.TimeOnly), failed), "")
	}
	fmt.Fprintln(&b)
	l.print(&b, how)
	fmt.Fprintf(&b, "\nevery %v; Ctrl-C ends\n", t.every)
	return b.String()
}

// frame draws a text over the one before, cut to the terminal.
func frame(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if over := len(lines) - height; over > 0 {
		lines = append(lines[:height-1], fmt.Sprintf("(%d lines more)", over+1))
	}
	for i, line := range lines {
		lines[i] = cutTo(line, width) + clearLine
	}
	return home + strings.Join(lines, "\r\n") + clearBelow
}

// A diary tells what changed between two readings, a line for each.
type diary struct {
	out, errOut io.Writer
	json        bool
	begun       bool
	failing     string
	before      map[string]entry
}

// An entry is one lock at a reading. Its texts are as stored.
type entry struct {
	At      time.Time `json:"at"` // this machine's clock
	Name    string    `json:"name"`
	Holders []holding `json:"holders"` // none: nobody holds it
	Waiting int       `json:"waiting"`
}

type holding struct {
	Process string   `json:"process"`
	Why     string   `json:"why"`
	Fence   int64    `json:"fence"`
	Session string   `json:"session"`
	Marks   []string `json:"marks"`
}

func (d *diary) tell(at time.Time, now listing, failed error) error {
	if text := errorText(failed); text != d.failing {
		if d.failing = text; failed == nil {
			text = "reads again"
		}
		fmt.Fprintf(d.errOut, "distlock watch: %s %s\n", at.Format(time.RFC3339), text)
	}
	if failed != nil {
		return nil
	}
	after := entries(now)
	for _, name := range slices.Sorted(maps.Keys(merged(d.before, after))) {
		old, is := d.before[name], after[name]
		if old.same(is) {
			continue
		}
		is.At, is.Name, is.Holders = at, name, append([]holding{}, is.Holders...)
		if err := d.write(is); err != nil {
			return err
		}
	}
	if !d.begun && len(after) == 0 && !d.json {
		fmt.Fprintln(d.out, now.void)
	}
	d.before, d.begun = after, true
	return nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func merged(a, b map[string]entry) map[string]entry {
	all := maps.Clone(b)
	maps.Copy(all, a)
	return all
}

// entries are the locks of a listing that somebody holds or waits for.
func entries(l listing) map[string]entry {
	all := map[string]entry{}
	for _, r := range l.Locks {
		e := all[r.Name]
		e.Holders = append(e.Holders, holding{r.Process, r.Why, r.Fence, r.Session, r.Marks})
		all[r.Name] = e
	}
	for _, w := range l.Line.Waiters {
		e := all[w.Name]
		e.Waiting++
		all[w.Name] = e
	}
	return all
}

// same reports whether there is nothing to tell.
func (e entry) same(as entry) bool {
	return e.Waiting == as.Waiting && slices.EqualFunc(e.Holders, as.Holders, func(a, b holding) bool {
		return a.Session == b.Session && a.Fence == b.Fence && slices.Equal(a.Marks, b.Marks)
	})
}

func (d *diary) write(e entry) error {
	if d.json {
		return writeJSONLine(d.out, e)
	}
	what := "is free"
	var by []string
	for _, h := range e.Holders {
		one := fmt.Sprintf("%s, fence %d (%s)", shown(short(h.Process), 100), h.Fence, shown(h.Why, 100))
		if len(h.Marks) > 0 {
			one += ", " + strings.Join(h.Marks, ", ")
		}
		by = append(by, one)
	}
	if len(by) > 0 {
		what = "held by " + strings.Join(by, " and by ")
	}
	if e.Waiting > 0 {
		what += fmt.Sprintf("; %d wait", e.Waiting)
	}
	_, err := fmt.Fprintf(d.out, "%s %s %s\n", e.At.Format(time.RFC3339), named(e.Name), what)
	return err
}
