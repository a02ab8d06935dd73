package study

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"strconv"
	"strings"
	"time"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// Page writes all plays as one HTML page that needs nothing beside it. Its links lead from the
// folder docs of the sources.
func Page(cases []Case, generations []Generation, plays []Play) string {
	w := &page{}
	w.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>How mongos' locks fail</title>
<style>
%s</style>
</head>
<body>
<header>
<h1>How mongos' locks fail</h1>
<p>Each generation of mongos' lock, and <a href="../README.md">this one</a>, played in the same %d cases in
virtual time. What came of it is computed from who was told what and when. This page is made by
<code>go run ./study --html</code>; <a href="study.md">a course</a> leads through it, and
<a href="semantics.md">semantics.md</a> has the rules.</p>
</header>
<main>
`, pageStyle, len(cases))
	w.table(cases, generations, plays)
	w.legend()
	n := len(generations)
	for i, c := range cases {
		w.section(c, generations, plays[i*n:(i+1)*n])
	}
	w.add("</main>\n<script>\n%s</script>\n</body>\n</html>\n",
		strings.ReplaceAll(pageScript, "WIDTH", strconv.Itoa(drawWidth-drawLeft-6)))
	return w.String()
}

type page struct{ strings.Builder }

func (w *page) add(format string, args ...any) { fmt.Fprintf(w, format, args...) }

var esc = html.EscapeString

// verdict is the class of an outcome.
func verdict(o Outcome) string {
	switch {
	case o.Bad():
		return "bad"
	case o.Two > 0, o.Idle > 17*time.Minute, o.Overtaken > 1:
		return "slow"
	}
	return "good"
}

func (w *page) table(cases []Case, generations []Generation, plays []Play) {
	w.add("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"All cases by generations\">\n<table id=\"all\">\n" +
		"<thead><tr><th scope=\"col\">case</th><th scope=\"col\">hole</th>")
	for _, g := range generations {
		w.add("<th scope=\"col\">%s<br><small>%s</small></th>", esc(g.Name), esc(g.Title))
	}
	w.add("</tr></thead>\n<tbody>\n")
	for i, c := range cases {
		w.add("<tr><th scope=\"row\"><a href=\"#%s\">%s</a></th><td>%s</td>", c.Name, esc(c.Title),
			esc(c.Hole))
		for j := range generations {
			o := plays[i*len(generations)+j].Outcome
			w.add("<td class=\"%s\">%s</td>", verdict(o), esc(strings.Join(o.Parts(), ", ")))
		}
		w.add("</tr>\n")
	}
	w.add("</tbody>\n</table>\n</div>\n")
}

func (w *page) legend() {
	w.add("<p class=\"legend\">")
	for _, l := range [][2]string{
		{"hold", "takes itself for the holder"}, {"two", "so do two that run"}, {"still", "stands still"},
		{"cut", "cut off"}, {"hang", "hangs"},
	} {
		w.add(`<span><svg width="26" height="12" aria-hidden="true"><rect class="%s" width="26" height="12"/></svg> %s</span> `,
			l[0], l[1])
	}
	for _, l := range []string{"ping", "failed", "take", "learn", "stale", "fenced", "dies", "clock"} {
		w.add(`<span><svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">%s</svg> %s</span> `,
			glyphs[l], glyphWords[l])
	}
	w.add("</p>\n")
}

// glyphs are the marks, around 0, 0.
var glyphs = map[string]string{
	"ping":   `<path class="ping" d="M0-4v8"/>`,
	"failed": `<path class="failed" d="M0-4v8"/>`,
	"take":   `<path class="take" d="M0-6l5 6l-5 6l-5-6z"/>`,
	"learn":  `<circle class="learn" r="5"/>`,
	"stale":  `<path class="stale" d="M0 5l-5-9h10z"/>`,
	"fenced": `<path class="fenced" d="M0 5l-5-9h10z"/>`,
	"dies":   `<path class="dies" d="M-5-5l10 10M5-5l-10 10"/>`,
	"clock":  `<path class="clock" d="M0-6a6 6 0 1 0 .1 0M0-4v4h3"/>`,
}

var glyphWords = map[string]string{
	"ping": "ping", "failed": "a ping that failed", "take": "takeover", "learn": "learns of its loss",
	"stale": "stale write goes in", "fenced": "stale write refused", "dies": "dies", "clock": "clock steps",
}

func (w *page) section(c Case, generations []Generation, plays []Play) {
	w.add(`<section id="%s" data-length="%d">
<h2>%s <small>%s</small></h2>
<p>%s %s %s</p>
<p class="links">The hole %s in <a href="semantics.md#%s">semantics.md</a>; in ours <a href="../%s"><code>%s</code></a>;
<code>go run ./study %s</code>; <a href="#all">all cases</a></p>
<div class="time"><label>time <input type="range" min="0" max="%d" step="1000" value="%d" aria-label="time in %s"></label>
<button type="button" data-to="-1">previous change</button> <button type="button" data-to="1">next change</button>
<output>12:00:00</output></div>
<div class="plays">
`, c.Name, milliseconds(c.Length), esc(c.Title), esc(c.Name), esc(c.Story), esc(c.Wrong), esc(c.Rule), esc(c.Hole),
		anchor(c), strings.Fields(c.Where)[0], strings.Fields(c.Where)[1], c.Name, milliseconds(c.Length),
		milliseconds(worth(c, plays)), c.Name)
	for i, p := range plays {
		w.figure(generations[i], p)
	}
	data := make([]documentData, len(plays))
	for i, p := range plays {
		data[i] = p.documentData()
	}
	text, err := json.Marshal(data) // escapes what could end the script
	if err != nil {
		panic("study: " + err.Error())
	}
	w.add("</div>\n<script type=\"application/json\">%s</script>\n</section>\n", text)
}

// worth is the instant that is worth looking at first: when there were two holders, else the
// middle.
func worth(c Case, plays []Play) time.Duration {
	for _, p := range plays {
		if p.Outcome.Two > 0 {
			return (p.Outcome.TwoFrom + time.Minute).Round(time.Second)
		}
	}
	return c.Length / 2
}

func anchor(c Case) string {
	if strings.ContainsAny(c.Hole, "0123456789") {
		return "the-known-holes"
	}
	return "the-rules"
}

func (w *page) figure(g Generation, p Play) {
	o := p.Outcome
	w.add("<figure class=\"%s\">\n<figcaption><b>%s</b> %s", verdict(o), esc(g.Name),
		esc(strings.Join(o.Parts(), ", ")))
	for _, l := range o.Losses {
		w.add("; %s", esc(l.Said()))
	}
	w.add("</figcaption>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s, %s\">",
		p.Case, esc(g.Name))
	w.drawing(p)
	w.add("</div>\n<div class=\"docs\"><pre aria-label=\"the lock document\"></pre><pre aria-label=\"the ping of its process\"></pre></div>\n</figure>\n")
}
