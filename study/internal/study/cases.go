package study

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed cases.txt
var caseTexts string

// A Case is one way in which a lock may go wrong: who takes part, whose clock is how wrong, what
// stops, what is cut off, what an operator does.
type Case struct {
	Name  string // as on the command line
	Title string
	Hole  string // the hole of docs/semantics.md that it shows
	// Story is what happens, Rule is what stops it: in later generations, and in ours. One sentence
	// each.
	Story, Wrong, Rule string
	// Where is the function of ours that does it: file and name.
	Where  string
	Length time.Duration
	// Not says why some generations cannot play it, by their names.
	Not map[string]string
	own []turn // what happens in it
	// Set are the knobs that were set otherwise, as NAME=VALUE: see With.
	Set   []string
	turns []turn
	// unseen says that only the outcome is wanted, and no record.
	unseen bool
}

// The files of the server's source in which most of it stands, by generation.
const (
	file16    = "r1.6.5 client/distlock.cpp:"
	file18    = "r1.8.5 client/distlock.cpp:"
	file20    = "r2.0.9 client/distlock.cpp:"
	file26    = "r2.6.12 src/mongo/s/distlock.cpp:"
	catalog32 = "r3.2.22 src/mongo/s/catalog/replset/dist_lock_catalog_impl.cpp:"
)

const (
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
)

// n is a number of something that lasts.
func n(i int) time.Duration { return time.Duration(i) }

// written are the cases of cases.txt; the last one is Quiet.
var written = sync.OnceValue(func() (all []Case) {
	nots := map[string]string{}
	paragraphs := strings.Split(strings.ReplaceAll(strings.TrimSpace(caseTexts), "\n  ", " "), "\n\n")
	for _, text := range paragraphs[1:] {
		head, rest, _ := strings.Cut(text, ": ")
		if name, not := strings.CutPrefix(head, "not "); not {
			nots[name] = rest
			continue
		}
		title, lines, _ := strings.Cut(rest, "\n")
		of := strings.Split(head, ", ")
		c := Case{Name: of[0], Hole: of[2], Title: title, Not: map[string]string{}}
		c.Length, _ = time.ParseDuration(of[1])
		for line := range strings.Lines(lines) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			c.reads(key, value, nots)
		}
		all = append(all, c)
	}
	return all
})

// reads takes over a line of its text. Not are the reasons that have a name.
func (c *Case) reads(key, value string, nots map[string]string) {
	switch key {
	case "story":
		c.Story = value
	case "wrong":
		c.Wrong = value
	case "rule":
		c.Rule, c.Where, _ = strings.Cut(value, " | ")
	case "not":
		if named, has := nots[value]; has {
			value = named
		}
		why := strings.Split(value, " | ")
		for _, one := range why[1:] {
			generation, source, _ := strings.Cut(one, " ")
			if generation == Ours {
				source = c.Where
			}
			c.Not[generation] = fmt.Sprintf("%s (%s)", why[0], source)
		}
	default:
		for word := range strings.FieldsSeq(value) {
			t, err := ownTurn(strings.TrimSuffix(key, "all"), word)
			if err != nil {
				panic(fmt.Sprintf("study: cases.txt: %s: %s: %v", c.Name, word, err))
			}
			c.own = append(c.own, t)
		}
	}
}

// Cases returns all cases, in the order of the course.
func Cases() []Case { return slices.Clone(written()[:len(written())-1]) }

// Quiet is the case in which nothing goes wrong: three processes want the lock, one after the
// other. The search puts its accidents into it, and it is played as any other.
func Quiet() Case { return written()[len(written())-1] }

// names are the letters of the processes.
func (c Case) names() []string {
	all := map[string]bool{}
	for _, t := range c.own {
		all[t.who] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

// sets are what the case has of each knob: what it sets first.
func (c Case) sets() map[string]turn {
	first := map[string]turn{}
	for _, t := range slices.Backward(c.own) {
		first[t.name()] = t
	}
	return first
}

// stage lets everybody take part, and all happen that was set, in the case and otherwise.
func (w *world) stage(c Case) {
	for _, name := range c.names() {
		p := &process{Process: w.NewProcess(len(w.processes), 1), w: w, name: name,
			host: strings.ToLower(name), counts: map[Kind]int{}, over: make(chan struct{})}
		p.ctx, p.end = context.WithCancel(context.Background())
		w.processes = append(w.processes, p)
	}
	own := c.sets()
	for _, t := range c.own {
		if !slices.ContainsFunc(c.turns, func(o turn) bool { return o.name() == t.name() }) {
			w.turn(t)
		}
	}
	for _, t := range c.turns {
		was, has := own[t.name()]
		if t.at < 0 && has {
			t.at = was.at
		} else if t.at < 0 {
			t.at = when
		}
		if was.what == late && was.kind == t.kind {
			t.what = late
		}
		w.turn(t)
	}
	for _, p := range w.processes { // its id depends on where it runs, and on its clock
		g := w.generation
		if p.role == old {
			g = Generations()[1]
		}
		p.locks = g.make(p, g.release)
	}
}

// turn lets happen what was set.
func (w *world) turn(t turn) {
	var p *process
	if i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == t.who }); i >= 0 {
		p = w.processes[i]
	}
	if t.decides {
		t.d = w.generation.decides()
	}
	t.dial.do(w, p, t)
}
