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
			cells = append(cells, strings.Join(p.Outcome.Parts(), ", "))
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

// sources prints what made each play come out as it did, and where that stands in the source.
func sources(w io.Writer, cases []study.Case, plays []study.Play, limit int) {
	n := len(plays) / len(cases)
	for i, c := range cases {
		row(w, column{limit, "", c.Name + " (" + c.Hole + ")"})
		for _, p := range of(plays, i, n) {
			row(w, column{limit, "  ", p.Generation + ": " + strings.Join(p.Outcome.Parts(), ", ")})
			for _, r := range p.Reasons(c) {
				row(w, column{limit, "    ", r.String()})
			}
		}
	}
}

// signs say in front of each line of a lane what the process is.
var signs = map[string]string{"": "|", "holds": "#", "two": "!", "still": "~", "gone": " "}

// A view is what is shown of a play.
type view struct {
	from, until instant
	all         bool // and not only what decides
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

// rows are those of a play that are shown.
func (v view) rows(p study.Play) []study.Row {
	return slices.DeleteFunc(p.Rows(), func(r study.Row) bool {
		return r.Quiet && !v.all || r.At < time.Duration(v.from) || v.until != 0 &&
			r.At > time.Duration(v.until)
	})
}

// timelines prints a case as each generation played it.
func timelines(w io.Writer, c study.Case, plays []study.Play, limit int, v view) {
	say := func(format string, args ...any) { row(w, column{limit, "", fmt.Sprintf(format, args...)}) }
	say("%s (%s): %s", c.Name, c.Hole, c.Title)
	for _, sentence := range []string{c.Story, c.Wrong, c.Rule} {
		say("%s", sentence)
	}
	if len(c.Set) > 0 {
		say("Set otherwise: %s", strings.Join(c.Set, ", "))
	}
	say("")
	say("Signs: # takes itself for the holder, ! so do two, ~ stands still, | runs. The time is " +
		"true time; the clock of a process may be wrong.")
	for _, p := range plays {
		say("")
		say("== %s (%s): %s", p.Generation, p.Title, strings.Join(p.Outcome.Parts(), ", "))
		if p.Outcome.Not != "" {
			say("%s", p.Outcome.Not)
			continue
		}
		for _, accident := range p.Missed {
			say("did not happen: %s", accident)
		}
		for _, l := range p.Outcome.Losses {
			say("%s", l.Said())
		}
		lanes(w, p, limit, v)
	}
}

// lanes prints a play with a lane for each process and one for the lock document; in a terminal
// that is too narrow for that, all in one lane.
func lanes(w io.Writer, p study.Play, limit int, v view) {
	n, width := len(p.Processes), laneWidth
	if limit > 0 {
		width = min(laneWidth, (limit-timeWidth-gap)/(n+1)-gap)
	}
	if width < leastLane {
		events(w, p, limit, v)
		return
	}
	heads := []column{{width: timeWidth}}
	for i := range p.Processes {
		heads = append(heads, column{width, "  ", head(p, i)})
	}
	row(w, append(heads, column{width, "", "server, lock document"})...)
	for _, r := range v.rows(p) {
		columns := []column{{timeWidth, "", study.Time(r.At)}}
		for i := range p.Processes {
			columns = append(columns, column{width: width, lead: signs[p.State(i, r.At)] + " "})
		}
		columns = append(columns, column{width: width})
		if lane := r.Process; lane >= 0 {
			columns[1+lane].text = r.Text
		} else {
			columns[1+n].text = r.Text
		}
		row(w, columns...)
	}
}

// head names a process and what is wrong with its clock.
func head(p study.Play, i int) string {
	name := p.Processes[i].Name
	if p.Processes[i].Clock != "" {
		name += ", clock " + p.Processes[i].Clock
	}
	return name
}

// events prints a play as a list.
func events(w io.Writer, p study.Play, limit int, v view) {
	for i := range p.Processes {
		row(w, column{limit, "", head(p, i)})
	}
	for _, r := range v.rows(p) {
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
