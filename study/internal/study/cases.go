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

// A Case is one way in which a lock may go wrong: its processes, their clocks, and the accidents.
type Case struct {
	Name   string // as on the command line
	Title  string
	Hole   string // the holes of docs/semantics.md that it shows
	Story  string
	Length time.Duration
	// Verdicts are the expected ones, by the columns of the generations.
	Verdicts map[string]Verdict
	// Set are the knobs that were set differently, as NAME=VALUE: see With.
	Set []string

	lock   string  // its name, if it is not "balancer"
	own    []turn  // its knobs and accidents
	of     release // played in the column 3.2; zero: any release
	within [2]release
	turns  []turn
	unseen bool // only the outcome is wanted, and no record
	limit  bool // where a reply races its time limit the limit is first
}

// A Verdict is the expected outcome of a case in one generation.
type Verdict struct {
	Shape  string // as Outcome.Shape; "no" if the case cannot be played; two/- for both of a race
	Source string // the line that decides: release, file and line; of ours file and function
	Who    string // the process that makes the deciding step; empty: any
	Why    string // in one sentence
}

// fileOf is the file of the server's source in which most of a generation is, by its column.
var fileOf = map[string]string{
	"1.8": "r1.8.5 client/distlock.cpp",
	"2.0": "r2.0.9 client/distlock.cpp",
	"2.6": "r2.6.12 src/mongo/s/distlock.cpp",
	"3.2": "r3.2.22 src/mongo/s/catalog/replset/replset_dist_lock_manager.cpp",
}

const (
	file16    = "r1.6.5 client/distlock.cpp:"
	catalog32 = "r3.2.22 src/mongo/s/catalog/replset/dist_lock_catalog_impl.cpp:"
)

const (
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
)

// written are the cases of cases.txt; the last one is Quiet.
var written = sync.OnceValue(func() (all []Case) {
	text := strings.ReplaceAll(strings.TrimSpace(caseTexts), "\n  ", " ")
	for _, text := range strings.Split(text, "\n\n")[1:] {
		head, rest, _ := strings.Cut(text, ": ")
		title, lines, _ := strings.Cut(rest, "\n")
		of := strings.Split(head, ", ")
		c := Case{Name: of[0], Hole: of[2], Title: title, Verdicts: map[string]Verdict{}}
		c.Length, _ = time.ParseDuration(of[1])
		for line := range strings.Lines(lines) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			c.reads(key, value)
		}
		all = append(all, c)
	}
	return all
})

// reads takes over one line of the text of a case.
func (c *Case) reads(key, value string) {
	if _, old := fileOf[key]; old || key == Ours {
		parts := strings.Split(value, " | ")
		source, who, _ := strings.Cut(parts[1], "@")
		v := Verdict{Shape: parts[0], Source: source, Who: who, Why: parts[2]}
		if line, short := strings.CutPrefix(v.Source, ":"); short {
			v.Source = fileOf[key] + ":" + line
		} else if line, short := strings.CutPrefix(v.Source, "catalog:"); short {
			v.Source = catalog32 + line
		} else if key != Ours && v.Source[0] != 'r' && strings.Contains(v.Source, "balance") {
			v.Source = strings.Fields(fileOf[key])[0] + " " + v.Source
		}
		c.Verdicts[key] = v
		return
	}
	switch key {
	case "story":
		c.Story = value
	case "lock":
		c.lock = value
	case "of":
		names := strings.Fields(value)
		c.of, c.within[0], c.within[1] = number(names[0]), number(names[1]), number(names[2])
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

// Quiet is the case without an accident: three processes want the lock, one after the other.
func Quiet() Case { return written()[len(written())-1] }

// Verdict returns the expected outcome of the case in the generation. Only the release in the
// column has one.
func (c Case) Verdict(g Generation) (v Verdict, ok bool) {
	v, ok = c.Verdicts[g.column]
	return v, ok && g.Name == g.column && len(c.Set) == 0
}

// as returns the generation by which the case is played: in the column 3.2 the case may name a
// release.
func (c Case) as(g Generation) Generation {
	if c.of != (release{}) && g.Name == "3.2" {
		g.release = c.of
	}
	return g
}

// not reports why a generation cannot play the case; empty: it can.
func (c Case) not(g Generation) string {
	switch v := c.Verdicts[g.column]; {
	case v.Shape == "no":
		return v.Why + " (" + v.Source + ")"
	case c.of != (release{}) && g.column == "3.2" && (slices.Compare(g.release[:],
		c.within[0][:]) < 0 || slices.Compare(g.release[:], c.within[1][:]) >= 0):
		return fmt.Sprintf("It needs a release from %s to before %s (%s)", c.within[0], c.within[1],
			v.Source)
	}
	return ""
}

// names are the letters of the processes.
func (c Case) names() []string {
	all := map[string]bool{}
	for _, t := range c.own {
		all[t.who] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

// sets are the values that the case has of each knob: the one that it sets first.
func (c Case) sets() map[string]turn {
	first := map[string]turn{}
	for _, t := range slices.Backward(c.own) {
		first[t.name()] = t
	}
	return first
}

// stage adds the processes and all that was set, in the case and by the reader.
func (w *world) stage(c Case) {
	for _, name := range c.names() {
		p := &process{Process: w.NewProcess(len(w.processes), 1), w: w, name: name, port: 27017,
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
		p.locks = w.generation.make(p, w.generation.release)
	}
}

// turn applies a setting.
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
