package study

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// The measures of a drawing.
const (
	drawWidth = 760
	drawLeft  = 74 // where time begins
	laneTall  = 30
	barTall   = 14
)

// A drawing is an SVG over a stretch of time.
type drawing struct {
	strings.Builder
	length time.Duration
}

func (w *drawing) add(format string, args ...any) { fmt.Fprintf(w, format, args...) }

var esc = html.EscapeString

// begins begins it, so tall, with what it is for who does not see it.
func (w *drawing) begins(tall int, label string) {
	w.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, drawWidth, tall, esc(label))
}

// x is where an instant is.
func (w *drawing) x(at time.Duration) float64 {
	return drawLeft + float64(at)/float64(w.length)*(drawWidth-drawLeft-6)
}

// rect draws what lasts.
func (w *drawing) rect(class string, x, y, wide float64, tall int, title string) {
	w.add(`<rect class="%s" x="%.1f" y="%.0f" width="%.1f" height="%d"><title>%s</title></rect>`,
		class, x, y, wide, tall, esc(title))
}

// bar draws what lasts from an instant to another, at least so wide that it is seen.
func (w *drawing) bar(class string, from, until time.Duration, y, tall int, what string) {
	w.rect(class, w.x(from), float64(y), max(1, w.x(min(until, w.length))-w.x(from)), tall,
		fmt.Sprintf("%s %s to %s", what, Time(from), Time(until)))
}

// classes are those of the bars, by their kinds.
var classes = map[string]string{"waits": "wait", "holds": "hold", "hangs": "hang",
	"paused": "still", "cut": "cut", "two": "two"}

// Drawing draws a play: a lane for each process, one for the lock document, and below the time.
func (p Play) Drawing() string {
	w := &drawing{length: p.Length}
	lanes := len(p.Processes)
	tall := (lanes+1)*laneTall + 30
	w.begins(tall, p.Came())
	for i := range p.Processes {
		from, until := p.life(i)
		w.add(`<path class="life" d="M%.1f %dH%.1f"/>`, w.x(from), i*laneTall+10, w.x(until))
	}
	for _, b := range p.Bars {
		y, tall := b.Process*laneTall+3, barTall
		if b.Kind == "cut" {
			y, tall = y+barTall+1, 3
		}
		w.bar(classes[b.Kind], b.From, b.Until, y, tall, classes[b.Kind])
	}
	w.named(p)
	from, until := p.zoomed()
	w.rect("zoomed", w.x(from)-2, 0, max(4, w.x(until)-w.x(from)+4), (lanes+1)*laneTall-8,
		"the decisive seconds")
	w.pings(p)
	w.marks(p)
	w.axis((lanes+1)*laneTall - 10)
	w.add(`<path class="cursor" d="M%d 0V%d"/>`, drawLeft, tall-16)
	w.names(p)
	w.add("</svg>")
	return w.String()
}

// names writes whose the lanes are, over what else is drawn: they stay where a drawing is wider
// than the screen.
func (w *drawing) names(p Play) {
	w.add(`<g class="names"><rect width="%d" height="%d"/>`, drawLeft-6,
		(len(p.Processes)+1)*laneTall-8)
	for i, proc := range p.Processes {
		w.add(`<text x="2" y="%d">%s</text>`, i*laneTall+14, esc(proc.Name))
		if proc.Clock != "" {
			clock, _, _ := strings.Cut(proc.Clock, " since ") // there is little room
			w.add(`<text class="wrong" x="2" y="%d">%s</text>`, i*laneTall+25, esc(clock))
		}
	}
	w.add(`<text x="2" y="%d">document</text></g>`, len(p.Processes)*laneTall+14)
}

// named draws whom the lock document named, and when.
func (w *drawing) named(p Play) {
	top := len(p.Processes) * laneTall
	draw := func(who string, from, until time.Duration) {
		if who == "" {
			return
		}
		w.bar("named", from, until, top+3, barTall, "the document names "+who+",")
		if w.x(until)-w.x(from) > 12 {
			w.add(`<text class="who" x="%.1f" y="%d">%s</text>`, w.x(from)+3, top+14, esc(who))
		}
	}
	who, from := "", time.Duration(0)
	for v := range p.ofLock() {
		if next := v.holder(); next != who {
			draw(who, from, v.At)
			who, from = next, v.At
		}
	}
	draw(who, from, p.Length)
}

// holder is the letter of the process that holds the lock by a version of its document.
func (v Version) holder() string {
	if state := v.value("state"); state == "" || state == "0" {
		return ""
	}
	return owner(v.value("process"))
}

// life is from when to when a process was there.
func (p Play) life(process int) (from, until time.Duration) {
	until = p.Length
	for _, m := range p.Marks {
		switch {
		case m.Process != process:
		case m.Kind == "start":
			from = m.At
		case m.dies():
			until = m.At
		}
	}
	return from, until
}

// pings draws the pings of each process below its bar: those at even distances as one dashed line.
func (w *drawing) pings(p Play) {
	beats := make([][]float64, len(p.Processes))
	for _, v := range p.Versions {
		if i := v.By; v.Collection == pings && i >= 0 && len(v.Fields) > 0 {
			if n := len(beats[i]); n == 0 || w.x(v.At)-beats[i][n-1] > 1.5 {
				beats[i] = append(beats[i], w.x(v.At))
			}
		}
	}
	for i, at := range beats {
		for from := 0; from < len(at); {
			until, gap := from+1, 2.0
			if until < len(at) {
				gap = at[until] - at[from]
			}
			for until < len(at) && math.Abs(at[until]-at[until-1]-gap) < .3 {
				until++
			}
			if n := until - 1 - from; n > 0 {
				gap = (at[until-1] - at[from]) / float64(n)
			}
			w.add(`<path class="beat" stroke-dasharray="1 %.2f" d="M%.1f %dH%.1f"/>`, gap-1, at[from],
				i*laneTall+23, at[until-1]+1)
			from = until
		}
	}
	for _, m := range p.Marks {
		if m.Kind == string(Ping) && m.Answer == errUnreachable.Error() {
			w.add(`<path class="failed dashed" d="M%.1f %dh%.1f"><title>pings fail</title></path>`,
				w.x(m.At), m.Process*laneTall+23, max(2, w.x(max(m.At, m.Until))-w.x(m.At)))
		}
	}
}

// areas are what lasts, by class, in words.
var areas = [][2]string{
	{"wait", "waits for it"}, {"named", "the document names it"},
	{"hold", "takes itself for the holder"}, {"two", "so do two that run"}, {"still", "stands still"},
	{"cut", "cut off"}, {"hang", "hangs"}, {"zoomed", "the decisive seconds"},
}

// glyphs are the marks by their names: how they are drawn around 0, 0, and in words.
var glyphs = [][3]string{
	{"ping", `<path class="ping" d="M0-4v8"/>`, "ping"},
	{"failed", `<path class="failed" d="M0-4v8"/>`, "a ping that failed"},
	{"take", `<path class="take" d="M0-6l5 6l-5 6l-5-6z"/>`, "takeover"},
	{"lost", `<path class="lost" d="M-5-3a5 5 0 1 1 0 6M-5-5l10 10"/>`, "the reply never came"},
	{"late", `<path class="late" d="M-5-5l7 5l-7 5zM4-5v10"/>`, "carried out late"},
	{"not released", `<path class="unfreed" d="M-4-5h8v10h-8zM-4 0h8"/>`, "could not release"},
	{"learns", `<circle class="learn" r="5"/>`, "learns of its loss"},
	{"stale", `<path class="stale" d="M0 5l-5-9h10z"/>`, "stale write goes in"},
	{"fenced", `<path class="fenced" d="M0 5l-5-9h10z"/>`, "stale write refused"},
	{"death", `<path class="dies" d="M-5-5l10 10M5-5l-10 10"/>`, "dies"},
	{"clock step", `<path class="clock" d="M0-6a6 6 0 1 0 .1 0M0-4v4h3"/>`, "clock steps"},
}

// marks draws what happened at an instant.
func (w *drawing) marks(p Play) {
	put := func(name string, at time.Duration, lane int, text string) {
		for _, g := range glyphs {
			if g[0] == name {
				w.add(`<g transform="translate(%.1f %d)">%s<title>%s %s</title></g>`, w.x(at),
					lane*laneTall+10, g[1], Time(at), esc(text))
			}
		}
	}
	for _, m := range p.Marks {
		switch {
		case m.Process < 0:
			w.add(`<path class="event" d="M%.1f 0V%d"><title>%s %s</title></path>`, w.x(m.At),
				len(p.Processes)*laneTall+6, Time(m.At), esc(m.Text))
		case m.Kind == string(Take) && m.Changed:
			put("take", m.At, m.Process, "takeover: "+m.Answer)
		case strings.Contains(m.Answer, errNoReply.Error()):
			put("lost", m.At, m.Process, m.Text+": "+m.Answer)
		case slices.Contains([]string{"late", "not released", "learns", "death", "clock step"}, m.Kind):
			put(m.Kind, m.At, m.Process, m.Text)
		}
	}
	last := map[int]float64{}
	for _, s := range p.Writes {
		if s.Verdict != "written" && w.x(s.At)-last[s.Process] >= 9 {
			put(s.Verdict, s.At, s.Process, s.Verdict+" write")
			last[s.Process] = w.x(s.At)
		}
	}
}

// axis draws the time of day.
func (w *drawing) axis(top int) {
	w.add(`<path class="axis" d="M%d %dH%d"/>`, drawLeft, top+8, drawWidth-6)
	const tick = 5 * time.Minute
	var ticks strings.Builder
	for at := time.Duration(0); at+tick/2 <= w.length; at += tick {
		fmt.Fprintf(&ticks, "M%.0f %dv4", w.x(at), top+6)
		w.add(`<text class="hour" x="%.0f" y="%d">%s</text>`, w.x(at), top+22,
			noon.Add(at).Format("15:04"))
	}
	w.add(`<path class="axis" d="%s"/>`, ticks.String())
}

// drawn draws what a sweep has found: a bar for each generation.
func (sw Sweep) drawn(all []Swept) string {
	const tall = 26
	w := &drawing{length: sw.Most}
	w.begins(len(all)*tall+24, sw.Title)
	for i, found := range all {
		top := i * tall
		w.add(`<text x="2" y="%d">%s</text>`, top+15, esc(found.Generation))
		until := sw.Most
		if found.Broken {
			until = found.From
		}
		if found.Not == "" {
			w.add(`<a href="%s">`, esc(sw.address(found.Generation, until)))
			for _, b := range []struct {
				class       string
				from, until time.Duration
			}{{"named", 0, until}, {"two", until, sw.Most}} {
				w.rect(b.class, w.x(b.from), float64(top+3), w.x(b.until)-w.x(b.from), barTall, found.Said(sw))
			}
			w.add("</a>")
		}
	}
	for i := range n(5) {
		far := sw.Most * i / 4
		w.add(`<text class="hour" x="%.0f" y="%d">%s</text>`, w.x(far)-8*float64(i/4), len(all)*tall+16,
			short(far))
	}
	w.add("</svg>")
	return w.String()
}
