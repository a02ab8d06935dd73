package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"mongodlm/cmd/internal/words"
	"mongodlm/internal/clock"
)

// watching shows locks and lines again and again. It only reads.
type watching struct {
	connection
	sieve
	every time.Duration
	json  bool
	void  string // what was said of a database without locks, which is asked for once
}

func (v *watching) flags(f *pflag.FlagSet) {
	v.connection.flags(f)
	v.sieve.flags(f)
	f.DurationVar(&v.every, "every", time.Second, "the `time` between two readings, 100ms to 1h")
	f.BoolVar(&v.json, "json", false, "print a JSON object, in a line of its own, for every change")
}

func (v *watching) accept(c call) error {
	if args := append(c.args, c.after...); len(args) > 1 {
		return fmt.Errorf("give one part of a name, not %q", args)
	} else if len(args) == 1 {
		v.part = args[0]
	}
	if err := v.sieve.accept(); err != nil {
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
	show := (&diary{out: s.out, errOut: s.errOut, json: v.json, sieve: v.sieve}).tell
	var screen *onTerminal
	var keys <-chan string
	clk := clock.From(ctx)
	if out, ok := s.out.(*os.File); ok && isTerminal(s.out) && !v.json && os.Getenv("TERM") != "dumb" {
		screen = &onTerminal{out: out, every: v.every, hosts: v.hosts(), sieve: v.sieve}
		screen.in, keys = keysOf(s.in)
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
		switch ended, err := screen.rest(ctx, clk.NewTimer(v.every), keys); {
		case err != nil, ended:
			return err
		case ctx.Err() != nil:
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
	if free+len(l.Locks)+len(l.Malformed) > 0 {
		v.void = ""
	}
	if err == nil {
		l.nothing(free, func() (string, bool) {
			if v.void == "" {
				v.void, _ = st.void(ctx)
			}
			return v.void, false
		})
	}
	return l, err
}

// lookLimit bounds a reading, so that the screen says soon that the server does not answer.
const lookLimit = 10 * time.Second

// A diary tells what changed between two readings, a line for each.
type diary struct {
	out, errOut io.Writer
	json        bool
	begun       bool
	failing     string
	before      map[string]entry
	sieve       sieve
	picked      map[string]int64 // at the reading before
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
	if text := errorText(failed); kind(text) != kind(d.failing) {
		if d.failing = text; failed == nil {
			text = "reads again"
		}
		fmt.Fprintf(d.errOut, "distlock watch: %s %s\n", at.Format(time.RFC3339), text)
	}
	if failed != nil {
		return nil
	}
	after, picked := entries(now), d.sieve.pick(now)
	for _, name := range slices.Sorted(maps.Keys(merged(d.before, after))) {
		old, is := d.before[name], after[name]
		_, was := d.picked[name]
		if _, passes := picked[name]; old.same(is) && was == passes || !was && !passes {
			continue // or it has left what is asked for, which is told as it is now
		}
		is.At, is.Name, is.Holders = at, name, append([]holding{}, is.Holders...)
		if err := d.write(is); err != nil {
			return err
		}
	}
	if !d.begun && len(picked) == 0 && !d.json {
		d.sieve.sift(&now)
		fmt.Fprintln(d.out, now.void)
	}
	d.before, d.picked, d.begun = after, picked, true
	return nil
}

// kind is an error's text without what differs from try to try.
func kind(text string) string {
	if strings.HasPrefix(text, noServer) {
		text, _, _ = strings.Cut(text, ": ")
	}
	return text
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
		one := fmt.Sprintf("%s, fence %d (%s)", shown(short(h.Process), longText), h.Fence,
			shown(h.Why, longText))
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
	_, err := fmt.Fprintf(d.out, "%s %s %s\n", e.At.Format(time.RFC3339),
		words.NamedTo(e.Name, longText), what)
	return err
}
