package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"mongodlm/study/internal/study"
)

func (c *call) table(w io.Writer, plays [][]study.Play) {
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

// verdicts prints the result of each case for each generation: the outcome, the time when a holder
// learned of its loss, the reason, and the deciding source line. For a single release it prints the
// reason of its generation, for comparison.
func (c *call) verdicts(w io.Writer, plays [][]study.Play) {
	for i, one := range c.cases {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s (%s): %s\n", one.Name, one.Hole, one.Title)
		if c.one {
			fmt.Fprintln(w, one.Story)
		}
		if len(one.Set) > 0 {
			fmt.Fprintln(w, "Changed knobs:", strings.Join(one.Set, ", "))
		}
		for j, p := range plays[i] {
			head := p.Generation
			if head != study.Ours {
				head += " (" + p.Title + ")"
			}
			fmt.Fprintf(w, "%s: %s\n", head, p.Outcome)
			if p.Outcome.Not != "" {
				fmt.Fprintln(w, " ", p.Outcome.Not)
				continue
			}
			for _, accident := range p.Missed {
				fmt.Fprintln(w, "  did not happen:", accident)
			}
			for _, l := range p.Outcome.Losses {
				fmt.Fprintln(w, " ", l)
			}
			v, own := one.Verdict(c.generations[j])
			if own {
				fmt.Fprintf(w, "  %s\n  %s\n", v.Why, v.Source)
			} else if len(one.Set) == 0 {
				release, _, _ := strings.Cut(v.Source, " ")
				fmt.Fprintf(w, "  compare %s (%s): %s\n  %s\n", release,
					strings.Replace(v.Shape, "-", "one holder", 1), v.Why, v.Source)
			}
			if c.timeline || c.all {
				c.events(w, p, v)
			}
		}
	}
}

// events prints the events of a play in true time, which may differ from the clock of a process.
func (c *call) events(w io.Writer, p study.Play, v study.Verdict) {
	for _, q := range p.Processes {
		if q.Clock != "" {
			fmt.Fprintf(w, "    %s: clock %s\n", q.Name, q.Clock)
		}
	}
	for _, r := range p.Rows(v) {
		who := "lock"
		switch {
		case r.Quiet && !c.all:
			continue
		case r.Process >= 0:
			who = p.Processes[r.Process].Name
		case r.Kind != "":
			who = "server"
		}
		if r.Decides {
			r.Text += " [decides]"
		}
		fmt.Fprintf(w, "    %s %-6s %s\n", study.Time(r.At), who, r.Text)
	}
}
