package study

import "time"

// A Report is plays in a form for programs. Times are milliseconds since the start of the play.
type Report struct {
	Case   string       `json:"case"`
	Title  string       `json:"title"`
	Hole   string       `json:"hole"`
	Story  string       `json:"story"`
	Wrong  string       `json:"wrong"`
	Rule   string       `json:"rule"`
	Set    []string     `json:"set,omitempty"` // knobs
	Length int64        `json:"lengthMS"`
	Plays  []PlayReport `json:"plays"`
}

// A PlayReport is one play. The lists are null in a report without details.
type PlayReport struct {
	Generation string          `json:"generation"`
	Parts      []string        `json:"outcome"`
	Not        string          `json:"notPossible,omitempty"`
	Two        int64           `json:"twoHoldersMS"`
	TwoFrom    int64           `json:"twoHoldersFromMS"`
	Idle       int64           `json:"nobodyMS"`
	GaveUp     bool            `json:"givenUp"`
	Stale      int             `json:"staleWrites"`
	Refused    int             `json:"staleWritesRefused"`
	Overtaken  int             `json:"overtaken"`
	Losses     []LossReport    `json:"losses"`
	Sources    []string        `json:"sources"`
	Processes  []Process       `json:"processes,omitempty"`
	Bars       []BarReport     `json:"bars,omitempty"`
	Marks      []MarkReport    `json:"events,omitempty"`
	Versions   []VersionReport `json:"documents,omitempty"`
}

// A LossReport is a holder that lost the lock. Learnt is null when it never knew.
type LossReport struct {
	Process string `json:"process"`
	At      int64  `json:"atMS"`
	Learnt  *int64 `json:"learntMS"`
	Said    string `json:"said"`
}

// A BarReport is a stretch of time of a process.
type BarReport struct {
	Process int    `json:"process"`
	Kind    string `json:"kind"`
	From    int64  `json:"fromMS"`
	Until   int64  `json:"untilMS"`
}

// A MarkReport is something that happened, Count times until Until.
type MarkReport struct {
	At      int64  `json:"atMS"`
	Process int    `json:"process"`
	Kind    string `json:"kind"`
	Text    string `json:"text"`
	Sent    string `json:"sent,omitempty"`
	Answer  string `json:"answer,omitempty"`
	Count   int    `json:"count,omitempty"`
	Until   int64  `json:"untilMS,omitempty"`
}

// A VersionReport is a document from an instant on.
type VersionReport struct {
	At         int64   `json:"atMS"`
	Collection string  `json:"collection"`
	ID         string  `json:"id"`
	Fields     []Field `json:"fields"`
}

// ReportOf makes a report of the plays of one case.
func ReportOf(c Case, plays []Play, details bool) Report {
	r := Report{Case: c.Name, Title: c.Title, Hole: c.Hole, Story: c.Story, Wrong: c.Wrong,
		Rule: c.Rule, Set: c.Set, Length: milliseconds(c.Length)}
	for _, p := range plays {
		r.Plays = append(r.Plays, p.report(c, details))
	}
	return r
}

func (p Play) report(c Case, details bool) PlayReport {
	o := p.Outcome
	r := PlayReport{Generation: p.Generation, Parts: o.Parts(), Not: o.Not, Two: milliseconds(o.Two),
		TwoFrom: milliseconds(o.TwoFrom), Idle: milliseconds(o.Idle), GaveUp: o.GaveUp, Stale: o.Stale,
		Refused: o.Fenced, Overtaken: o.Overtaken, Losses: []LossReport{}}
	for _, l := range o.Losses {
		loss := LossReport{Process: l.Process, At: milliseconds(l.At), Said: l.Said()}
		if l.Learnt > 0 {
			at := milliseconds(l.Learnt)
			loss.Learnt = &at
		}
		r.Losses = append(r.Losses, loss)
	}
	for _, reason := range p.Reasons(c) {
		r.Sources = append(r.Sources, reason.String())
	}
	if !details {
		return r
	}
	r.Processes = p.Processes
	for _, b := range p.Bars {
		r.Bars = append(r.Bars, BarReport{b.Process, b.Kind, milliseconds(b.From), milliseconds(b.Until)})
	}
	for _, m := range p.Marks {
		r.Marks = append(r.Marks, MarkReport{milliseconds(m.At), m.Process, m.Kind, m.Text, m.Sent,
			m.Answer, m.Count, milliseconds(m.Until)})
	}
	for _, v := range p.Versions {
		r.Versions = append(r.Versions, VersionReport{milliseconds(v.At), v.Collection, v.ID, v.Fields})
	}
	return r
}

func milliseconds(d time.Duration) int64 { return d.Milliseconds() }
