package main

import (
	"fmt"
	"io"
	"strings"

	"mongodlm/study/internal/study"
)

// The widths of the gap between two columns, of a time, and the least one of an outcome.
const (
	gap        = 2
	timeWidth  = len("12:00:00.0")
	leastWidth = 15
)

// A column is what one column shows in a row: a text that is broken into lines as wide as the
// column, and what stands in front of each line.
type column struct {
	width      int
	lead, text string
}

// row prints columns side by side.
func row(w io.Writer, columns ...column) {
	lines := make([][]string, len(columns))
	most := 0
	for i, c := range columns {
		lines[i] = wrapped(c.text, c.width-len(c.lead))
		most = max(most, len(lines[i]))
	}
	for n := range most {
		var line strings.Builder
		for i, c := range columns {
			text := c.lead
			if n < len(lines[i]) {
				text += lines[i][n]
			}
			fmt.Fprintf(&line, "%-*s", c.width+gap, text)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// wrapped breaks a text between its words into lines of at most so many columns, and where one word
// is longer in that word; 0: one line.
func wrapped(text string, limit int) (lines []string) {
	if limit <= 0 {
		return []string{text}
	}
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) <= limit {
			line += " " + word
			continue
		} else if line != "" {
			lines = append(lines, line)
		}
		for ; len(word) > limit; word = word[limit:] {
			lines = append(lines, word[:limit])
		}
		line = word
	}
	return append(lines, line)
}

// table prints the cases by generations.
func table(w io.Writer, cases []study.Case, generations []study.Generation, plays []study.Play,
	limit int) {
	rows := [][]string{{"CASE", "HOLE"}}
	for _, g := range generations {
		rows[0] = append(rows[0], strings.ToUpper(g.Name))
	}
	for i, c := range cases {
		cells := []string{c.Name, c.Hole}
		for _, p := range of(plays, i, len(generations)) {
			cells = append(cells, p.Cell())
		}
		rows = append(rows, cells)
	}
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, cell := range cells {
			widths[i] = max(widths[i], len(cell))
		}
	}
	if limit > 0 {
		share := (limit-widths[0]-widths[1]-2*gap)/len(generations) - gap
		for i := range generations {
			widths[2+i] = min(widths[2+i], max(share, leastWidth))
		}
	}
	for _, cells := range rows {
		var columns []column
		for i, cell := range cells {
			columns = append(columns, column{width: widths[i], text: cell})
		}
		row(w, columns...)
	}
}

// verdicts prints what came of each case, generation by generation: the outcome, when a holder
// learnt of its loss, the reason, and the line of the source that decides.
func (c *call) verdicts(w io.Writer, plays []study.Play, limit int) {
	for i, one := range c.cases {
		if i > 0 {
			fmt.Fprintln(w)
		}
		say := func(lead, text string) { row(w, column{limit, lead, text}) }
		say("", fmt.Sprintf("%s (%s): %s", one.Name, one.Hole, one.Title))
		if c.one {
			say("", one.Story)
		}
		if len(one.Set) > 0 {
			say("", "Set differently: "+strings.Join(one.Set, ", "))
		}
		for j, p := range of(plays, i, len(c.generations)) {
			say("", head(p)+": "+p.Outcome.String())
			if p.Outcome.Not != "" {
				say("  ", p.Outcome.Not)
				continue
			}
			for _, accident := range p.Missed {
				say("  ", "did not happen: "+accident)
			}
			for _, l := range p.Outcome.Losses {
				say("  ", l.String())
			}
			if v, known := one.Verdict(c.generations[j]); known {
				say("  ", v.Why)
				say("  ", v.Source)
			}
		}
	}
	if !c.view.show && !c.view.all {
		return
	}
	for j, p := range plays {
		if p.Outcome.Not == "" {
			v, _ := c.cases[0].Verdict(c.generations[j])
			fmt.Fprintf(w, "\n== %s\n", head(p))
			events(w, p, limit, c.view.all, v)
		}
	}
}

// head names the generation of a play, and the release if it is played in its place.
func head(p study.Play) string {
	if p.Generation == study.Ours {
		return p.Generation
	}
	return p.Generation + " (" + p.Title + ")"
}

// A view is the part of a timeline that is printed.
type view struct {
	show bool
	all  bool // with pings and polls
}

// events prints the course of events of a play, in true time; the clock of a process may be wrong.
func events(w io.Writer, p study.Play, limit int, all bool, v study.Verdict) {
	for _, q := range p.Processes {
		if q.Clock != "" {
			row(w, column{limit, "", q.Name + ": clock " + q.Clock})
		}
	}
	for _, r := range p.Rows(v) {
		if r.Quiet && !all {
			continue
		}
		who := "server"
		if r.Process >= 0 {
			who = p.Processes[r.Process].Name
		} else if r.Document {
			who = "lock"
		}
		if r.Decides {
			r.Text += " [decides]"
		}
		row(w, column{timeWidth, "", study.Time(r.At)},
			column{max(limit-timeWidth-gap, 0), "", who + " " + r.Text})
	}
}
