package main

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
)

//go:embed page.html
var pageTemplate string

// A pool numbers strings, so that the page stores each string only once.
type pool struct {
	texts  []string
	number map[string]int64
}

func (p *pool) of(text string) int64 {
	n, known := p.number[text]
	if !known {
		n = int64(len(p.texts))
		p.number[text] = n
		p.texts = append(p.texts, text)
	}
	return n
}

type pageCase struct {
	Name, Title, Hole, Story string
	Length                   int64
	Plays                    []pagePlay
}

// pagePlay is a play in the data of the page. Strings are indexes into the pool. Times are in
// milliseconds.
type pagePlay struct {
	Generation string     `json:"g"`
	Title      string     `json:"t"`
	Outcome    string     `json:"o"`
	Shape      string     `json:"s"`
	Why        string     `json:"w"`
	Source     string     `json:"c"`
	Losses     []string   `json:"l,omitempty"`
	Processes  []string   `json:"p,omitempty"`
	Clocks     []string   `json:"k,omitempty"`
	Bars       [][4]int64 `json:"b,omitempty"` // process, kind, from, until
	// A step consists of its time, process, text, source, command and kind. The last number is 1 for
	// the deciding step.
	Steps [][7]int64 `json:"r,omitempty"`
	// Lock lists the versions of the lock document. A version consists of its time and the numbers of
	// its fields.
	Lock [][]int64 `json:"d,omitempty"`
}

// Page returns an HTML page with all plays. A script in the page shows them step by step.
func Page(cases []Case, generations []Generation, plays [][]Play) string {
	texts := &pool{number: map[string]int64{}}
	var all []pageCase
	for i, c := range cases {
		one := pageCase{Name: c.Name, Title: c.Title, Hole: c.Hole, Story: c.Story,
			Length: c.Length.Milliseconds()}
		for j, g := range generations {
			one.Plays = append(one.Plays, plays[i][j].page(c, g, texts))
		}
		all = append(all, one)
	}
	data, err := json.Marshal(map[string]any{"cases": all, "texts": texts.texts, "bars": barKinds})
	if err != nil {
		panic("study: " + err.Error())
	}
	return strings.Replace(pageTemplate, "DATA", string(data), 1) // Marshal escapes <, > and &
}

// barKinds lists the kinds of bars in drawing order.
var barKinds = []string{"waits", "holds", "hangs", "paused", "cut", "two", "pings"}

func (p Play) page(c Case, g Generation, texts *pool) pagePlay {
	v, _ := c.Verdict(g)
	one := pagePlay{Generation: g.Name, Title: p.Title, Outcome: p.Outcome.String(), Shape: v.Shape,
		Why: v.Why, Source: v.Source}
	if p.Outcome.Not != "" {
		return one
	}
	for _, l := range p.Outcome.Losses {
		one.Losses = append(one.Losses, l.String())
	}
	for _, q := range p.Processes {
		one.Processes, one.Clocks = append(one.Processes, q.Name), append(one.Clocks, q.Clock)
	}
	for _, b := range p.Bars {
		one.Bars = append(one.Bars, [4]int64{int64(b.Process), int64(slices.Index(barKinds, b.Kind)),
			b.From.Milliseconds(), min(b.Until, c.Length).Milliseconds()})
	}
	decides := p.deciding(v)
	for i, m := range p.Marks {
		if m.Quiet && i != decides {
			continue
		}
		step := [7]int64{m.At.Milliseconds(), int64(m.Process), texts.of(m.text()), texts.of(m.Source),
			texts.of(m.Sent), texts.of(m.Kind)}
		if i == decides {
			step[6] = 1
		}
		one.Steps = append(one.Steps, step)
	}
	for _, v := range p.Lock {
		version := []int64{v.At.Milliseconds()}
		for _, f := range v.Fields {
			version = append(version, texts.of(f))
		}
		one.Lock = append(one.Lock, version)
	}
	return one
}
