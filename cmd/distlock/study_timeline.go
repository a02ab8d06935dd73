package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"mongodlm/internal/study"
)

// signs say in front of each line of a lane what the process is.
var signs = map[string]string{"": "|", "holds": "#", "two": "!", "still": "~", "gone": " "}

// The widths of a timeline: of the column of the time, of a lane, and the least of one in which a person
// reads anything.
const (
	timeWidth = len("12:00:00.0") + gap
	laneWidth = 34
	leastLane = 16
)

// timelines prints a case as each generation played it.
func (v *studies) timelines(w io.Writer, plays []study.Play, how layout) {
	c := v.cases[0]
	say := func(format string, args ...any) {
		for _, line := range wrapped(fmt.Sprintf(format, args...), how.width) {
			fmt.Fprintln(w, line)
		}
	}
	say("%s (%s): %s", c.Name, c.Hole, c.Title)
	for _, sentence := range []string{c.Story, c.Wrong, c.Rule} {
		say("%s", sentence)
	}
	say("")
	say("Signs: # takes itself for the holder, ! so do two, ~ stands still, | runs. The time is true time; the " +
		"clock of a process may be wrong.")
	for _, p := range plays {
		say("")
		say("== %s: %s", p.Generation, strings.Join(p.Outcome.Parts(), ", "))
		for _, l := range p.Outcome.Losses {
			say("%s", l.Said())
		}
		lanes(w, p, how)
	}
}

// lanes prints a play with a lane for each process and one for the lock document; in a terminal that is too
// narrow for that, a line for each event.
func lanes(w io.Writer, p study.Play, how layout) {
	n := len(p.Processes) + 1
	wide := laneWidth
	if how.width > 0 {
		wide = min(laneWidth, (how.width-timeWidth)/n-gap)
	}
	if wide < leastLane {
		events(w, p, how)
		return
	}
	var heads []string
	for i := range p.Processes {
		heads = append(heads, "  "+head(p, i))
	}
	printLanes(w, "", append(heads, "server, lock document"), wide)
	for _, r := range p.Rows() {
		cells := make([][]string, n)
		lane := r.Process
		if lane < 0 {
			lane = n - 1
		}
		cells[lane] = wrapped(r.Text, wide-gap)
		for line := range len(cells[lane]) {
			texts := make([]string, n)
			for i := range p.Processes {
				texts[i] = signs[p.State(i, r.At)]
			}
			if lane < n-1 {
				texts[lane] += " "
			}
			texts[lane] += cells[lane][line]
			at := ""
			if line == 0 {
				at = study.Time(r.At)
			}
			printLanes(w, at, texts, wide)
		}
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

func printLanes(w io.Writer, at string, texts []string, wide int) {
	var line strings.Builder
	fmt.Fprintf(&line, "%-*s", timeWidth, at)
	for _, text := range texts {
		text = cutTo(text, wide)
		line.WriteString(text + strings.Repeat(" ", wide-cells(text)+gap))
	}
	fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
}

// events prints a play as a list.
func events(w io.Writer, p study.Play, how layout) {
	for i := range p.Processes {
		fmt.Fprintln(w, cutTo(head(p, i), how.width))
	}
	for _, r := range p.Rows() {
		who := "server"
		if r.Process >= 0 {
			who = signs[p.State(r.Process, r.At)] + " " + p.Processes[r.Process].Name
		} else if r.Document {
			who = "lock"
		}
		lines := wrapped(who+" "+r.Text, max(how.width-timeWidth, leastLane))
		for i, line := range lines {
			at := slices.Concat([]string{study.Time(r.At)}, make([]string, len(lines)))[i]
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-*s%s", timeWidth, at, line), " "))
		}
	}
}
