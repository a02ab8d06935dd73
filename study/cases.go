package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed cases.txt
var caseTexts string

// A Case is a scenario in which a lock may fail. It defines processes, their clocks, and accidents.
type Case struct {
	Name     string // as on the command line
	Title    string
	Hole     string // holes of docs/semantics.md that the case shows
	Story    string
	Length   time.Duration
	Verdicts map[string]Verdict // expected outcomes, by the column of a generation

	lock  string // name of the lock, if not "balancer"
	own   []turn // settings
	of    string // release in the column 3.2, if not 3.2.22
	limit bool   // if a reply races its time limit, the limit wins
}

// A Verdict is the expected outcome of a case in one generation.
type Verdict struct {
	Shape  string // as in Outcome.Shape; "no" if not playable; two/- for both results of a race
	Source string // deciding line: release, file and line; for this module file and function
	Who    string // process of the deciding step; empty for any process
	Why    string // reason in one sentence
}

// fileOf maps the column of a generation, such as 1.8, to the source file with most of its code.
var fileOf = map[string]string{
	"1.8": "r1.8.5 client/distlock.cpp",
	"2.0": "r2.0.9 client/distlock.cpp",
	"2.6": "r2.6.12 src/mongo/s/distlock.cpp",
	"3.2": "r3.2.22 src/mongo/s/catalog/replset/replset_dist_lock_manager.cpp",
}

const catalog32 = "r3.2.22 src/mongo/s/catalog/replset/dist_lock_catalog_impl.cpp"

const (
	ms = time.Millisecond
	s  = time.Second
	m  = time.Minute
	h  = time.Hour
)

// Cases returns all cases, in the order of docs/study.md.
var Cases = sync.OnceValue(func() (all []Case) {
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

// reads adds a line of cases.txt, split into key and value, to the case.
func (c *Case) reads(key, value string) {
	if _, old := fileOf[key]; old || key == Ours {
		parts := strings.Split(value, " | ")
		source, who, _ := strings.Cut(parts[1], "@")
		if source[0] == ':' {
			source = fileOf[key] + source
		}
		source = strings.Replace(source, "catalog:", catalog32+":", 1)
		c.Verdicts[key] = Verdict{Shape: parts[0], Source: source, Who: who, Why: parts[2]}
		return
	}
	switch key {
	case "story":
		c.Story = value
	case "lock":
		c.lock = value
	case "of":
		c.of = value
	default:
		for word := range strings.FieldsSeq(value) {
			t, err := parseTurn(strings.TrimSuffix(key, "all"), word)
			if err != nil {
				panic(fmt.Sprintf("study: cases.txt: %s: %s: %v", c.Name, word, err))
			}
			c.own = append(c.own, t)
		}
	}
}

// as returns the generation that plays the case. If the case requires a certain release of
// generation 3.2, this release plays in place of 3.2.
func (c Case) as(g Generation) Generation {
	if c.of != "" && g.Name == "3.2" {
		g.release, g.Title = c.of, "release "+c.of
	}
	return g
}

// not returns the reason why g cannot play the case, or "" if g can play it.
func (c Case) not(g Generation) string {
	if v := c.Verdicts[g.Name]; v.Shape == "no" {
		return v.Why + " (" + v.Source + ")"
	}
	return ""
}

func (c Case) names() (all []string) {
	for _, t := range c.own {
		if t.who != "" {
			all = append(all, t.who)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// stage creates the processes of a case and applies its settings.
func (w *world) stage(c Case) {
	of := map[string]*process{}
	for _, name := range c.names() {
		p := &process{Process: w.NewProcess(len(w.processes), 1), w: w, name: name, port: 27017,
			host: strings.ToLower(name), counts: map[Kind]int{}}
		p.ctx, p.end = context.WithCancel(context.Background())
		w.processes = append(w.processes, p)
		of[name] = p
	}
	for _, t := range c.own {
		t.p = of[t.who]
		t.do(w, t)
	}
	for _, p := range w.processes { // the id depends on the host and the clock
		p.locks = w.generation.make(p, w.generation.release)
	}
}
