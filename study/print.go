package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"mongodlm/study/internal/study"
)

// The widths of what is printed: between two columns, of the column of the time, of a lane, and the
// least of one in which a person reads anything.
const (
	gap       = 2
	timeWidth = len("12:00:00.0")
	laneWidth = 34
	leastLane = 15
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

// table prints the cases by generations, in a terminal that is too narrow for that a line for each
// play.
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
			widths[2+i] = min(widths[2+i], share)
		}
		if share < leastLane {
			list(w, rows, limit)
			return
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

func list(w io.Writer, rows [][]string, limit int) {
	const name = len("  OURS")
	for _, cells := range rows[1:] {
		row(w, column{limit, "", cells[0] + " (" + cells[1] + ")"})
		for i, cell := range cells[2:] {
			row(w, column{name, "  ", rows[0][2+i]}, column{limit - name - gap, "", cell})
		}
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
	if !c.view.show {
		return
	}
	row(w, column{limit, "", "\nSigns: # takes itself for the holder, ! so do two, ~ is frozen, | runs. " +
		"The time is true time; the clock of a process may be wrong."})
	for j, p := range plays {
		if p.Outcome.Not == "" {
			v, _ := c.cases[0].Verdict(c.generations[j])
			fmt.Fprintf(w, "\n== %s\n", head(p))
			lanes(w, p, limit, c.view.rows(p, v))
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

// signs show the state of a process at the begin of each line of its lane.
var signs = map[string]string{"": "|", "holds": "#", "two": "!", "still": "~", "gone": " "}

// A view is the part of a timeline that is printed.
type view struct {
	show        bool
	from, until instant
	all         bool // with pings and polls
}

// An instant is a time of day in a play; 0: not set.
type instant time.Duration

func (i *instant) set(text string) error {
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.Parse(layout, text); err == nil {
			*i = instant(at.Sub(at.Truncate(24*time.Hour)) - 12*time.Hour)
			return nil
		}
	}
	return errors.New("a time is written as 12:05 or 12:05:30")
}

// rows are those of a play that are printed.
func (v view) rows(p study.Play, verdict study.Verdict) []study.Row {
	return slices.DeleteFunc(p.Rows(verdict), func(r study.Row) bool {
		return r.Quiet && !v.all || r.At < time.Duration(v.from) || v.until != 0 &&
			r.At > time.Duration(v.until)
	})
}

// lanes prints a play with a lane for each process and one for the lock document; in a terminal
// that is too narrow for that, all in one lane.
func lanes(w io.Writer, p study.Play, limit int, rows []study.Row) {
	n, width := len(p.Processes), laneWidth
	if limit > 0 {
		width = min(laneWidth, (limit-timeWidth-gap)/(n+1)-gap)
	}
	if width < leastLane {
		events(w, p, limit, rows)
		return
	}
	heads := []column{{width: timeWidth}}
	for i := range p.Processes {
		heads = append(heads, column{width, "  ", lane(p, i)})
	}
	row(w, append(heads, column{width, "", "server, lock document"})...)
	for _, r := range rows {
		columns := []column{{timeWidth, "", study.Time(r.At)}}
		for i := range p.Processes {
			columns = append(columns, column{width: width, lead: signs[p.State(i, r.At)] + " "})
		}
		columns = append(columns, column{width: width})
		if r.Decides {
			r.Text += " [decides]"
		}
		if lane := r.Process; lane >= 0 {
			columns[1+lane].text = r.Text
		} else {
			columns[1+n].text = r.Text
		}
		row(w, columns...)
	}
}

// lane names a process and the error of its clock.
func lane(p study.Play, i int) string {
	name := p.Processes[i].Name
	if p.Processes[i].Clock != "" {
		name += ", clock " + p.Processes[i].Clock
	}
	return name
}

// events prints a play as a list.
func events(w io.Writer, p study.Play, limit int, rows []study.Row) {
	for i := range p.Processes {
		row(w, column{limit, "", lane(p, i)})
	}
	for _, r := range rows {
		who := "server"
		if r.Process >= 0 {
			who = signs[p.State(r.Process, r.At)] + " " + p.Processes[r.Process].Name
		} else if r.Document {
			who = "lock"
		}
		row(w, column{timeWidth, "", study.Time(r.At)},
			column{max(limit-timeWidth-gap, leastLane), "", who + " " + r.Text})
	}
}
