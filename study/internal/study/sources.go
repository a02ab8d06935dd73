package study

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// A line is a step of an old generation: the process that makes it, and the line of the server's
// source that it follows.
type line struct {
	*process
	source string
}

// A Reason is a step that made a play come out as it did.
type Reason struct {
	At   time.Duration
	Text string // who did what; empty for what was not played
	// Source is the line of the server's source, by release, file and number; for ours the file and
	// the function.
	Source string
}

// Reasons returns the steps that made a play come out as it did, in the order of time: what an
// accident struck, the decision and the command that ended a holder's lock or a dead one's, and
// where there is none of these, or somebody gave up, the last decision; else who got the lock.
func (p Play) Reasons(c Case) []Reason {
	switch {
	case p.Outcome.Not != "":
		why, source, _ := strings.Cut(strings.TrimSuffix(p.Outcome.Not, ")"), " (")
		return []Reason{{Text: why, Source: source}}
	case p.Generation == Ours:
		return []Reason{{Source: c.Where}}
	}
	var found []Reason
	add := func(m *Mark) {
		if m == nil {
			return
		}
		r := Reason{m.At, p.Processes[m.Process].Name + " " + m.words(), m.Source}
		if !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	add(p.last(func(m Mark) bool { return m.Struck }))
	for _, kind := range []string{forgets, breaksOff} {
		add(p.last(func(m Mark) bool { return m.Kind == kind }))
	}
	ends := p.ends()
	for _, v := range ends {
		if v.By < 0 { // an operator: what did the holder ask, who took it?
			holder := p.lane(owner(v.value("process")))
			add(p.last(func(m Mark) bool { return m.Kind == inquired && m.Process == holder }))
			add(p.last(func(m Mark) bool { return m.Kind == string(Grab) && m.Process != holder }))
			continue
		}
		add(p.last(func(m Mark) bool { return m.Kind == decided && m.Process == v.By && m.At <= v.At }))
		add(
			p.last(func(m Mark) bool { return m.Process == v.By && m.Source == v.Source && m.At <= v.At }))
	}
	if p.Outcome.GaveUp || len(ends) == 0 {
		add(p.last(func(m Mark) bool { return m.Kind == decided }))
	}
	for _, kinds := range [][]string{{decided, watched}, {string(Grab)}} {
		if len(found) == 0 {
			add(p.last(func(m Mark) bool { return slices.Contains(kinds, m.Kind) }))
		}
	}
	slices.SortStableFunc(found, func(a, b Reason) int { return cmp.Compare(a.At, b.At) })
	return found
}

// words say what a mark is.
func (m Mark) words() string {
	if strings.Contains(m.Text, lockCollection) {
		return m.Kind
	}
	return m.Text
}

// last is the last mark with a source that fits; nil if none does.
func (p Play) last(fits func(Mark) bool) *Mark {
	var found *Mark
	for i, m := range p.Marks {
		if m.Source != "" && fits(m) &&
			(found == nil || max(m.At, m.Until) >= max(found.At, found.Until)) {
			found = &p.Marks[i]
		}
	}
	return found
}

// ends are the versions of the lock document that ended a lock whose holder took itself for one
// still, or was dead.
func (p Play) ends() (found []Version) {
	before := Version{}
	for v := range p.ofLock() {
		who := before.holder()
		if who != "" && v.By != p.lane(who) &&
			(who != v.holder() || before.value("ts") != v.value("ts")) {
			found = append(found, v)
		}
		before = v
	}
	return found
}

// ofLock are the versions of the lock document.
func (p Play) ofLock() iter.Seq[Version] {
	return func(yield func(Version) bool) {
		for _, v := range p.Versions {
			if v.Collection == locks && v.ID == lockName && !yield(v) {
				return
			}
		}
	}
}

// lane is the place of a process by its letter, -1 if there is none.
func (p Play) lane(letter string) int {
	return slices.IndexFunc(p.Processes, func(q Process) bool { return q.Name == letter })
}

// value is that of a field; empty where there is none.
func (v Version) value(field string) string {
	for _, f := range v.Fields {
		if f.Name == field {
			return f.Value
		}
	}
	return ""
}

// String is a reason in a line.
func (r Reason) String() string {
	if r.Text == "" {
		return r.Source
	}
	return fmt.Sprintf("%s: %s", r.Text, r.Source)
}
