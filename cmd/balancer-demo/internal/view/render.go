package view

import (
	"fmt"
	"strings"
	"time"

	"mongodlm/catalog"
)

// Limits of the picture.
const (
	minWidth  = 80
	maxWidth  = 160
	minHeight = 24
	maxHeight = 40
	minEvents = 2
	maxEvents = 12
	// evidenceLines is how many lines the evidence of the latest takeover may take.
	evidenceLines = 3
	// fixedLines is what is drawn beside the rows of balancers and shards: the header, three empty
	// lines, three headings, the lock, its line, a line on takeovers and their evidence, and the
	// fewest events.
	fixedLines = 10 + evidenceLines + minEvents
)

// Render draws the table in lines of at most width columns (80 to 160; less is drawn as 80, more
// as 160), without control sequences, ending in a newline. It has one line less than s.Height, so
// that the cursor below it does not scroll a terminal. Rows that do not fit are counted in a line
// of their own; the events get what is left, two at least.
func Render(s State, width int) string {
	width = min(max(width, minWidth), maxWidth)
	height := min(max(s.Height, minHeight), maxHeight) - 1
	rowsOfBalancers, rowsOfShards := share(len(s.Balancers), len(s.Shards), height-fixedLines)
	lines := []string{header(s, width)}
	lines = append(lines, balancers(s, rowsOfBalancers)...)
	lines = append(lines, "", "lock      "+lockLine(s.Lock), "in line   "+Line(s.Line))
	lines = append(lines, takeovers(s, width)...)
	lines = append(lines, "")
	lines = append(lines, bars(s, rowsOfShards, width)...)
	lines = append(lines, "")
	lines = append(lines, events(s, min(maxEvents, height-len(lines)-1))...)
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight(cut(line, width), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// share divides room lines between two lists. The longer one gives way; a list that is not shown
// whole needs one line to say so.
func share(a, b, room int) (int, int) {
	need := func(shown, all int) int {
		if shown < all {
			return shown + 1
		}
		return all
	}
	x, y := a, b
	for need(x, a)+need(y, b) > room {
		if x > y {
			x--
		} else {
			y--
		}
	}
	return x, y
}

// Frame turns a rendered table into what a terminal needs to show it in the place of the one
// before: the cursor goes home, every line is erased to its end, and the rest of the screen after
// the last one. The first line is bold.
func Frame(table string) string {
	const (
		home      = "\x1b[H"
		eraseLine = "\x1b[K"
		eraseRest = "\x1b[J"
		bold      = "\x1b[1m"
		plain     = "\x1b[0m"
	)
	first, rest, _ := strings.Cut(table, "\n")
	return home + bold + first + plain + eraseLine + "\n" +
		strings.ReplaceAll(rest, "\n", eraseLine+"\n") + eraseRest
}

func header(s State, width int) string {
	state := "balancing"
	if s.Finished {
		state = "balanced"
	}
	left := fmt.Sprintf("%s  %s  config server %s", clean(s.Title, 40), Short(s.Elapsed),
		clean(s.Server, 40))
	gap := max(2, width-columns(left)-len(state))
	return left + strings.Repeat(" ", gap) + state
}

func balancers(s State, rows int) []string {
	lines := []string{fmt.Sprintf("%-9s%8s  %-18s%7s%6s%9s%14s %s",
		"balancer", "pid", "state", "rounds", "moves", "ping age", "fence", "lock")}
	for i, b := range s.Balancers {
		if i == rows {
			lines = append(lines, fmt.Sprintf("and %d more", len(s.Balancers)-rows))
			break
		}
		ping, fence, mark := "none", "-", ""
		if b.PingAge >= 0 {
			ping = Short(b.PingAge)
		}
		if b.Fence > 0 {
			fence = fmt.Sprint(b.Fence)
		}
		switch {
		case b.Holder:
			mark = "HOLDER"
		case b.Place > 0:
			mark = fmt.Sprintf("line %d", b.Place)
		}
		lines = append(lines, fmt.Sprintf("#%-8d%8d  %-18s%7d%6d%9s%14s %s", b.Number, b.PID,
			clean(string(b.Condition), 18), b.Rounds, b.Moves, ping, fence, mark))
	}
	return lines
}

func lockLine(l Lock) string {
	name := catalog.Printable(l.Name, 30)
	holder, process := clean(l.Process, 60), ""
	if l.Number > 0 {
		holder, process = fmt.Sprintf("#%d", l.Number), ", "+holder
	}
	silence := ""
	if l.Held && (l.Dead || l.Takeover > 0 && l.Silent > l.Takeover/4) {
		silence = fmt.Sprintf(", silent for %s of %s", Short(max(l.Silent, 0)), Short(l.Takeover))
	}
	switch {
	case l.Held && l.Dead:
		return fmt.Sprintf("\"%s\" held by the DEAD %s%s, fence %d%s", name, holder, silence, l.Fence, process)
	case silence != "":
		return fmt.Sprintf("\"%s\" held by %s%s, fence %d%s", name, holder, silence, l.Fence, process)
	case l.Held:
		return fmt.Sprintf("\"%s\" held by %s, fence %d, for %s: %s%s", name, holder, l.Fence,
			Short(l.Since), clean(l.Why, 60), process)
	case l.Process == "":
		return fmt.Sprintf("\"%s\" was never held", name)
	}
	return fmt.Sprintf("\"%s\" free, last held by %s, fence %d%s", name, holder, l.Fence, process)
}

// Line words who waits, the next one first: "#3 for 412ms, #1 for 8ms".
func Line(line []Waiter) string {
	const shown = 12
	var all []string
	for i, w := range line {
		if i == shown {
			all = append(all, fmt.Sprintf("and %d more", len(line)-shown))
			break
		}
		who := fmt.Sprintf("#%d", w.Number)
		if w.Number == 0 {
			who = clean(w.Process, 30)
		}
		if w.Waited >= 0 {
			who += " for " + Short(w.Waited)
		}
		all = append(all, who)
	}
	if len(all) == 0 {
		return "nobody"
	}
	return strings.Join(all, ", ")
}

// takeovers shows how many there were and what the last one rested on.
func takeovers(s State, width int) []string {
	if len(s.Takeovers) == 0 {
		return []string{"takeovers 0"}
	}
	t := s.Takeovers[len(s.Takeovers)-1]
	lines := []string{fmt.Sprintf("takeovers %d, the last at %s with fence %d:", len(s.Takeovers),
		Short(t.At), t.Fence)}
	evidence := wrap(catalog.Printable(t.Evidence, 1000), width-2)
	if len(evidence) > evidenceLines {
		rest := strings.Join(evidence[evidenceLines-1:], " ")
		evidence = append(evidence[:evidenceLines-1], cut(rest, width-2))
	}
	for _, line := range evidence {
		lines = append(lines, "  "+line)
	}
	return lines
}

func events(s State, count int) []string {
	lines := []string{"events"}
	for _, e := range s.Events[max(0, len(s.Events)-count):] {
		lines = append(lines, fmt.Sprintf("  %7s  %-4s%-10s%s", Short(e.At), actor(e.Balancer),
			clean(e.Kind, 9), clean(e.Text, 130)))
	}
	return lines
}

func actor(number int) string {
	if number == 0 {
		return "-"
	}
	return fmt.Sprintf("#%d", number)
}

// Short is a duration of at most seven characters: "12ms", "3.4s", "2m05s".
func Short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// clean escapes a foreign text and cuts it to limit columns, the mark of the cut included.
func clean(s string, limit int) string { return cut(catalog.Printable(s, limit), limit) }

// cut shortens a text that was escaped already to width columns; three dots stand for the rest.
func cut(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	room := width - len("...")
	for i, r := range s {
		if room -= runeColumns(r); room < 0 {
			return s[:i] + "..."
		}
	}
	return s
}

// columns is how much room a text takes at most.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// runeColumns is 2 from the first script on that terminals draw in double width. Some runes above
// it are narrow: they are given too much room, never too little.
func runeColumns(r rune) int {
	if r >= 0x1100 {
		return 2
	}
	return 1
}
