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

// Page writes all plays, and those of others if there are any, as one HTML page that needs nothing beside it. Its links lead from the
// folder docs of the sources.
func Page(cases []Case, generations []Generation, plays, others []Play) string {
	w := &page{}
	w.head("How mongos' locks fail", pageStyle)
	w.add(`<header>
<h1>How mongos' locks fail</h1>
<p>Each generation of mongos' lock, and <a href="../README.md">this one</a>, played in the same %d cases in
virtual time. What came of it is computed from who was told what and when. This page is made by
<code>go run ./study --html</code>; <a href="study.md">a course</a> leads through it, and
<a href="semantics.md">semantics.md</a> has the rules.</p>
</header>
<main>
`, len(cases))
	w.hatch()
	w.table("all", "All cases by generations", cases, generations, plays)
	if len(others) > 0 {
		w.beside(others)
	}
	w.legend()
	n := len(generations)
	for i, c := range cases {
		w.section(c, generations, plays[i*n:(i+1)*n])
	}
	w.foot(pageScript)
	return w.String()
}

type page struct{ strings.Builder }

func (w *page) head(title, style string) {
	w.add(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>
%s</style>
</head>
<body>
`, title, style)
}

// hatch is the pattern of those who wait.
func (w *page) hatch() {
	w.add(`<svg width="0" height="0" aria-hidden="true"><pattern id="waiting" width="6" height="6" patternUnits="userSpaceOnUse" ` +
		`patternTransform="rotate(45)"><path class="hatch" d="M0 0v6"/></pattern></svg>` + "\n")
}

func (w *page) foot(script string) {
	w.add("</main>\n<script>\n%s</script>\n</body>\n</html>\n",
		strings.NewReplacer("WIDTH", strconv.Itoa(drawWidth-drawLeft-6), "LEFT", strconv.Itoa(drawLeft),
			"ALL", strconv.Itoa(drawWidth)).Replace(script))
}

func (w *page) add(format string, args ...any) { fmt.Fprintf(w, format, args...) }

var esc = html.EscapeString

// verdict is the class of an outcome.
func verdict(o Outcome) string {
	switch {
	case o.Not != "":
		return "none"
	case o.Bad():
		return "bad"
	case o.Two > 0, o.Idle > 17*time.Minute, o.Overtaken > 1:
		return "slow"
	}
	return "good"
}

// beside writes what comes of the locks of others.
func (w *page) beside(plays []Play) {
	w.add("<h2 class=\"beside\">The locks of others</h2>\n<p>As far as these cases need them; " +
		"<code>go run ./study others</code>.</p>\n")
	w.table("others", "Cases by the locks of others", OthersCases(), Others(), plays)
	w.add("<p class=\"links\">")
	for _, g := range Others() {
		w.add("%s: %s. ", esc(g.Name), esc(g.Source))
	}
	w.add("</p>\n")
}

func (w *page) table(id, label string, cases []Case, generations []Generation, plays []Play) {
	w.add("<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s\">\n<table id=\"%s\">\n"+
		"<thead><tr><th scope=\"col\">case</th><th scope=\"col\">hole</th>", label, id)
	for _, g := range generations {
		w.add("<th scope=\"col\">%s<br><small>%s</small></th>", esc(g.Name), esc(g.Title))
	}
	w.add("</tr></thead>\n<tbody>\n")
	for i, c := range cases {
		w.add("<tr><th scope=\"row\"><a href=\"#%s\">%s</a></th><td>%s</td>", c.Name, esc(c.Title),
			esc(c.Hole))
		for j := range generations {
			o := plays[i*len(generations)+j].Outcome
			w.add("<td class=\"%s\" title=\"%s\">%s</td>", verdict(o), esc(o.Not), esc(strings.Join(o.Parts(), ", ")))
		}
		w.add("</tr>\n")
	}
	w.add("</tbody>\n</table>\n</div>\n")
}

func (w *page) legend() {
	w.add("<p class=\"legend\">")
	for _, l := range [][2]string{
		{"wait", "waits for it"}, {"named", "the document names it"}, {"hold", "takes itself for the holder"}, {"two", "so do two that run"}, {"still", "stands still"},
		{"cut", "cut off"}, {"hang", "hangs"}, {"zoomed", "the decisive seconds"},
	} {
		w.add(`<span><svg width="26" height="12" aria-hidden="true"><rect class="%s" width="26" height="12"/></svg> %s</span> `,
			l[0], l[1])
	}
	for _, g := range glyphs {
		w.add(`<span><svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">%s</svg> %s</span> `, g.path, g.words)
	}
	w.add("</p>\n")
}

// glyphs are the marks, around 0, 0.
var glyphs = []struct{ name, path, words string }{
	{"ping", `<path class="ping" d="M0-4v8"/>`, "ping"},
	{"failed", `<path class="failed" d="M0-4v8"/>`, "a ping that failed"},
	{"take", `<path class="take" d="M0-6l5 6l-5 6l-5-6z"/>`, "takeover"},
	{"lost", `<path class="lost" d="M-5-3a5 5 0 1 1 0 6M-5-5l10 10"/>`, "the reply never came"},
	{"late", `<path class="late" d="M-5-5l7 5l-7 5zM4-5v10"/>`, "carried out late"},
	{"unfreed", `<path class="unfreed" d="M-4-5h8v10h-8zM-4 0h8"/>`, "could not release"},
	{"learn", `<circle class="learn" r="5"/>`, "learns of its loss"},
	{"stale", `<path class="stale" d="M0 5l-5-9h10z"/>`, "stale write goes in"},
	{"fenced", `<path class="fenced" d="M0 5l-5-9h10z"/>`, "stale write refused"},
	{"dies", `<path class="dies" d="M-5-5l10 10M5-5l-10 10"/>`, "dies"},
	{"clock", `<path class="clock" d="M0-6a6 6 0 1 0 .1 0M0-4v4h3"/>`, "clock steps"},
}

func glyph(name string) string {
	for _, g := range glyphs {
		if g.name == name {
			return g.path
		}
	}
	return ""
}

func (w *page) section(c Case, generations []Generation, plays []Play) {
	w.add(`<section id="%s" data-length="%d">
<h2>%s <small>%s</small></h2>
<p>%s %s %s</p>
<p class="links">The hole %s in <a href="semantics.md#%s">semantics.md</a>; in ours <a href="../%s"><code>%s</code></a>;
<code>go run ./study %s</code>; <a href="#all">all cases</a></p>
`, c.Name, milliseconds(c.Length), esc(c.Title), esc(c.Name), esc(c.Story), esc(c.Wrong), esc(c.Rule), esc(c.Hole),
		anchor(c), strings.Fields(c.Where)[0], strings.Fields(c.Where)[1], c.Name)
	w.plays(c, generations, plays)
}

// plays draws the plays of a case, with a slider and the documents.
func (w *page) plays(c Case, generations []Generation, plays []Play) {
	w.add(`<div class="time"><label>time <input type="range" min="0" max="%d" step="1000" value="%d" aria-label="time in %s"></label>
<button type="button" data-to="-1">previous change</button> <button type="button" data-to="1">next change</button>
<output>12:00:00</output></div>
<div class="plays">
`, milliseconds(c.Length), milliseconds(worth(c, plays)), c.Name)
	for i, p := range plays {
		w.figure(c, generations[i], p)
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

// anchor is the row of a hole in semantics.md, else its rules.
func anchor(c Case) string {
	if strings.ContainsAny(c.Hole[:1], "HG") {
		return strings.ToLower(c.Hole)
	}
	return "the-rules"
}

func (w *page) figure(c Case, g Generation, p Play) {
	o := p.Outcome
	w.add("<figure class=\"%s\">\n<figcaption><b>%s</b> %s", verdict(o), esc(g.Name),
		esc(strings.Join(o.Parts(), ", ")))
	if o.Not != "" {
		w.add(": %s</figcaption>\n</figure>\n", esc(o.Not))
		return
	}
	for _, l := range o.Losses {
		w.add("; %s", esc(l.Said()))
	}
	w.add("</figcaption>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s, %s\">",
		p.Case, esc(g.Name))
	w.drawing(p)
	from, until := p.zoomed()
	w.add("</div>\n<details class=\"zoom\"><summary>the decisive seconds, %s to %s</summary></details>\n", Time(from), Time(until))
	w.add("<details class=\"why\"><summary>the lines of the source</summary>")
	for _, r := range p.Reasons(c) {
		w.add("<p>%s</p>", esc(r.String()))
	}
	w.add("</details>\n<div class=\"docs\"><pre aria-label=\"the lock document\"></pre><pre aria-label=\"the ping of its process\"></pre></div>\n</figure>\n")
}
