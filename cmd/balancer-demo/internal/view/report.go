package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mongodlm/catalog"
	"mongodlm/cmd/balancer-demo/internal/referee"
)

// A Report is what the demo says at its end. Its JSON form has stable names; durations are whole
// nanoseconds. Missing lists are written as empty ones.
type Report struct {
	// Balanced is true when no candidate for a migration was left.
	Balanced   bool `json:"balanced"`
	RoundsOnly bool `json:"roundsOnly"` // a number of rounds was asked for, not balance
	// Interrupted names the signal that ended the demo before it had shown everything.
	Interrupted string        `json:"interrupted,omitempty"`
	Duration    time.Duration `json:"durationNanos"`
	Balancers   []Rounds      `json:"balancers"`
	Handovers   int           `json:"handovers"` // the lock went to another process after a release
	// LongestLine is how many were seen waiting at a time.
	LongestLine int                 `json:"longestLine"`
	Takeovers   []Takeover          `json:"takeovers"`
	Migrations  []Migrations        `json:"migrations"`
	Faults      []Fault             `json:"faults"`
	Refused     int                 `json:"refused"` // writes of a stale holder that matched nothing
	Before      []Load              `json:"before"`
	After       []Load              `json:"after"`
	Violations  []referee.Violation `json:"violations"`
}

// Rounds is what one process did.
type Rounds struct {
	Number  int    `json:"number"`
	Process string `json:"process"`
	Rounds  int    `json:"rounds"`
	Moves   int    `json:"moves"`
	// Waited is how long it waited for the lock of all its rounds together, LongestWait for one.
	Waited      time.Duration `json:"waitedNanos"`
	LongestWait time.Duration `json:"longestWaitNanos"`
	Place       int           `json:"place"` // the last one in the line where it was seen; 0: none
}

// Migrations is how many chunks of a collection were moved.
type Migrations struct {
	Namespace string `json:"namespace"`
	Chunks    int    `json:"chunks"`
}

// A Fault is something that was done to the demo on purpose.
type Fault struct {
	At       time.Duration `json:"atNanos"`
	Kind     string        `json:"kind"` // kill or stop
	Target   string        `json:"target"`
	Happened bool          `json:"happened"` // false: the demo ended before it came to it
	Survived bool          `json:"survived"`
}

// A Load is how many chunks a shard has.
type Load struct {
	Shard       string         `json:"shard"`
	Draining    bool           `json:"draining"`
	Chunks      int            `json:"chunks"`
	Collections map[string]int `json:"collections"`
}

// OK reports whether the demo showed what it should: nothing was violated, every fault that happened
// was survived, and the cluster is balanced.
func (r Report) OK() bool {
	survived := !slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.Happened && !f.Survived })
	return (r.Balanced || r.RoundsOnly) && survived && len(r.Violations) == 0
}

// JSON is the report for programs, indented, ending in a newline.
func (r Report) JSON() ([]byte, error) {
	r.Balancers = append([]Rounds{}, r.Balancers...)
	r.Takeovers = append([]Takeover{}, r.Takeovers...)
	r.Migrations = append([]Migrations{}, r.Migrations...)
	r.Faults = append([]Fault{}, r.Faults...)
	r.Before = counted(r.Before)
	r.After = counted(r.After)
	r.Violations = append([]referee.Violation{}, r.Violations...)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("view: write report: %w", err)
	}
	return append(text, '\n'), nil
}

// counted is a copy of loads in which a shard without chunks has an empty map of collections.
func counted(loads []Load) []Load {
	copied := append([]Load{}, loads...)
	for i := range copied {
		if copied[i].Collections == nil {
			copied[i].Collections = map[string]int{}
		}
	}
	return copied
}

// Text is the report for people, in lines of at most 100 columns, ending in a newline.
func (r Report) Text() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	state := "the cluster is balanced"
	if !r.Balanced {
		state = "the cluster is NOT balanced"
	}
	if r.Interrupted != "" {
		state = fmt.Sprintf("ended early (%s): %s", clean(r.Interrupted, 40), state)
	}
	add("%s after %s", state, Short(r.Duration))
	add("")
	add("rounds per balancer")
	rounds, moves := 0, 0
	for _, b := range r.Balancers {
		add("  #%-3d %5d rounds %5d moves  %s", b.Number, b.Rounds, b.Moves, clean(b.Process, 60))
		rounds, moves = rounds+b.Rounds, moves+b.Moves
	}
	add("  all  %5d rounds %5d moves, %d handovers by release", rounds, moves, r.Handovers)
	lines = append(lines, r.waits()...)
	add("")
	add("takeovers %d", len(r.Takeovers))
	for _, t := range r.Takeovers {
		add("  %7s  fence %d, after a wait of %s", Short(t.At), t.Fence, Short(t.Waited))
		add("           from %s", clean(t.From, 80))
		add("           to   %s", clean(t.To, 80))
		for _, line := range wrap(catalog.Printable(t.Evidence, 1000), 87) {
			add("           %s", line)
		}
	}
	add("")
	add("migrations per collection")
	for _, m := range r.Migrations {
		add("  %-30s %5d", clean(m.Namespace, 30), m.Chunks)
	}
	lines = append(lines, r.shards()...)
	lines = append(lines, r.faults()...)
	lines = append(lines, r.verdict()...)
	for i, line := range lines {
		lines[i] = strings.TrimRight(cut(line, 100), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// waits is how long the balancers waited in line for the lock.
func (r Report) waits() []string {
	lines := []string{"", "waits for the lock, first come first served"}
	line := func(who string, total, most time.Duration, rounds int) string {
		mean := total / time.Duration(max(1, rounds))
		return fmt.Sprintf("  %-4s %7s on average %7s at most", who, Short(mean), Short(most))
	}
	var total, most time.Duration
	rounds := 0
	for _, b := range r.Balancers {
		where := ", never seen in line"
		if b.Place > 0 {
			where = fmt.Sprintf(", seen as far back as place %d", b.Place)
		}
		lines = append(lines, line(fmt.Sprintf("#%d", b.Number), b.Waited, b.LongestWait, b.Rounds)+where)
		total, most, rounds = total+b.Waited, max(most, b.LongestWait), rounds+b.Rounds
	}
	return append(lines, line("all", total, most, rounds)+
		fmt.Sprintf(", seen in line at a time: %d", r.LongestLine))
}

// shards is the table of chunks before and after.
func (r Report) shards() []string {
	lines := []string{"", fmt.Sprintf("%-26s%8s%8s", "chunks on", "before", "after")}
	after := map[string]Load{}
	for _, l := range r.After {
		after[l.Shard] = l
	}
	for _, l := range r.Before {
		name := clean(l.Shard, 16)
		if l.Draining {
			name += " draining"
		}
		lines = append(lines, fmt.Sprintf("  %-24s%8d%8d", name, l.Chunks, after[l.Shard].Chunks))
		namespaces := maps.Clone(l.Collections)
		if namespaces == nil {
			namespaces = map[string]int{}
		}
		maps.Copy(namespaces, after[l.Shard].Collections)
		for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
			lines = append(lines, fmt.Sprintf("    %-22s%8d%8d", clean(ns, 21),
				l.Collections[ns], after[l.Shard].Collections[ns]))
		}
	}
	return lines
}

func (r Report) faults() []string {
	survived, happened := 0, 0
	var rest []string
	for _, f := range r.Faults {
		switch {
		case !f.Happened:
			rest = append(rest, fmt.Sprintf("  not come to: %s", clean(f.Kind, 20)))
			continue
		case f.Survived:
			survived++
		case r.Interrupted != "":
			rest = append(rest, fmt.Sprintf("  not seen to its end: %s of %s at %s", clean(f.Kind, 20),
				clean(f.Target, 50), Short(f.At)))
		default:
			rest = append(rest, fmt.Sprintf("  NOT survived: %s of %s at %s", clean(f.Kind, 20),
				clean(f.Target, 50), Short(f.At)))
		}
		happened++
	}
	return append([]string{"", fmt.Sprintf("faults survived %d of %d, writes of a stale holder refused %d",
		survived, happened, r.Refused)}, rest...)
}

// wrap breaks a text at spaces into lines of at most width columns; a longer word is cut.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		word = cut(word, width)
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func (r Report) verdict() []string {
	if len(r.Violations) == 0 {
		return []string{"", "violations none: never two balancers in a round, no write of a stale " +
			"holder, no chunk lost"}
	}
	lines := []string{"", fmt.Sprintf("VIOLATIONS %d", len(r.Violations))}
	for _, v := range r.Violations {
		lines = append(lines, fmt.Sprintf("  %s: %s", v.Breach, clean(v.Subject, 60)))
		for _, line := range wrap(catalog.Printable(v.Evidence, 1000), 94) {
			lines = append(lines, "    "+line)
		}
	}
	return lines
}
