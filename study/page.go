package main

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
)

//go:embed page.html
var pageTemplate string

// barKinds lists the kinds of bars in drawing order.
var barKinds = []string{"waits", "holds", "hangs", "paused", "cut", "two", "pings"}

// Page returns an HTML page with all plays. A script in the page shows them step by step. In the
// data of the page, times are in milliseconds, and the texts of steps are indexes into a list.
func Page(cases []Case, generations []Generation, plays [][]Play) string {
	var texts []string
	numbers := map[string]int{}
	number := func(text string) int {
		n, known := numbers[text]
		if !known {
			n = len(texts)
			numbers[text] = n
			texts = append(texts, text)
		}
		return n
	}
	var all []any
	for i, c := range cases {
		var shown []any
		for j, g := range generations {
			shown = append(shown, plays[i][j].page(c, g, number))
		}
		all = append(all, map[string]any{"Name": c.Name, "Title": c.Title, "Hole": c.Hole,
			"Story": c.Story, "Length": c.Length.Milliseconds(), "Plays": shown})
	}
	data, err := json.Marshal(map[string]any{"cases": all, "texts": texts, "bars": barKinds})
	if err != nil {
		panic("study: " + err.Error())
	}
	return strings.Replace(pageTemplate, "DATA", string(data), 1) // Marshal escapes <, > and &
}

func (p Play) page(c Case, g Generation, number func(string) int) map[string]any {
	v := c.Verdicts[g.Name]
	one := map[string]any{"g": g.Name, "t": p.Title, "o": p.Outcome.String(), "s": v.Shape, "w": v.Why,
		"c": v.Source}
	if p.Outcome.Not != "" {
		return one
	}
	var bars, steps, versions [][]any
	for _, b := range p.Bars {
		bars = append(bars, []any{b.Process, slices.Index(barKinds, b.Kind), b.From.Milliseconds(),
			min(b.Until, c.Length).Milliseconds()})
	}
	decides := p.deciding(v)
	for i, m := range p.Marks {
		if m.Quiet && i != decides {
			continue
		}
		step := []any{m.At.Milliseconds(), m.Process, number(m.text()), number(m.Source),
			number(m.Sent), number(m.Kind)}
		if i == decides {
			step = append(step, true)
		}
		steps = append(steps, step)
	}
	for _, v := range p.Lock { // the time and the fields
		version := []any{v.At.Milliseconds()}
		for _, f := range v.Fields {
			version = append(version, number(f))
		}
		versions = append(versions, version)
	}
	one["p"], one["b"], one["r"], one["d"] = p.Processes, bars, steps, versions
	return one
}
