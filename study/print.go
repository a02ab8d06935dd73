package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

func (c *call) table(w io.Writer, plays [][]Play) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "CASE\tHOLES")
	for _, g := range c.generations {
		fmt.Fprint(t, "\t", strings.ToUpper(g.Name))
	}
	for i, one := range c.cases {
		fmt.Fprintf(t, "\n%s\t%s", one.Name, one.Hole)
		for _, p := range plays[i] {
			fmt.Fprint(t, "\t", p.Cell())
		}
	}
	fmt.Fprintln(t)
	_ = t.Flush() // writes to memory
}

// verdicts prints the result of each case for each generation: the outcome, the reason, and the
// deciding source line.
func (c *call) verdicts(w io.Writer, plays [][]Play) {
	for i, one := range c.cases {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s): %s\n", one.Name, one.Hole, one.Title)
		if c.one() {
			fmt.Fprintln(w, one.Story)
		}
		for _, p := range plays[i] {
			head := p.Generation
			if head != Ours {
				head += " (" + p.Title + ")"
			}
			fmt.Fprintf(w, "%s: %s\n", head, p.Outcome)
			if p.Outcome.Not != "" {
				fmt.Fprintln(w, " ", p.Outcome.Not)
				continue
			}
			v := one.Verdicts[p.Generation]
			fmt.Fprintf(w, "  %s\n  %s\n", v.Why, v.Source)
			if c.timeline || c.all {
				c.events(w, p, v)
			}
		}
	}
}

// events prints the events of a play in true time, which may differ from the clock of a process.
func (c *call) events(w io.Writer, p Play, v Verdict) {
	decides := p.deciding(v)
	for i, m := range p.Marks {
		who, text := "lock", m.text()
		switch {
		case m.Quiet && !c.all && i != decides:
			continue
		case m.Process >= 0:
			who = p.Processes[m.Process]
		case m.Kind != "":
			who = "server"
		}
		if i == decides {
			text += " [decides]"
		}
		fmt.Fprintf(w, "    %s %-6s %s\n", Time(m.At), who, text)
	}
}

// deciding returns the index of the mark that decides the play, or -1. In this module the
// candidates are acquisitions, takeovers and losses. In the other generations the candidates are
// the marks that the verdict names. The last candidate of the first non-empty group decides:
//
//   - candidates before two processes hold the lock
//   - candidates of weight 2, then of weight 1, then of weight 0
func (p Play) deciding(v Verdict) int {
	found, most := -1, -1
	who := slices.Index(p.Processes, v.Who)
	for i, m := range p.Marks {
		of := m.Source == v.Source
		if p.Generation == Ours {
			of = slices.Contains([]string{"learns", "holds", string(Take)}, m.Kind)
		}
		if v.Source == "" || !of || who >= 0 && m.Process != who {
			continue
		}
		weight := m.Weight
		if p.Outcome.Two > 0 && m.At <= p.Outcome.TwoFrom {
			weight = 3
		}
		if weight >= most {
			found, most = i, weight
		}
	}
	return found
}

// Cell returns the outcome in a few words. If a single release plays in place of generation 3.2,
// Cell adds the name of the release.
func (p Play) Cell() string {
	words := map[string]string{"-": "one holder", "no": "not possible", "two": p.Outcome.Parts()[0],
		"stale": "a stale write", "stuck": "stuck", "starved": "a waiter starves", "late": "late"}
	first, other, both := strings.Cut(p.Outcome.Shape(), "/")
	cell := words[first]
	if both {
		cell += " or " + words[other]
	}
	if release, of := strings.CutPrefix(p.Title, "release "); of && first != "no" {
		cell = release + ": " + cell
	}
	return cell
}
