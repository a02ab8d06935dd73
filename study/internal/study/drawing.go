package study

import (
	"fmt"
	"math"
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

// drawing draws a play: a lane for each process, one for the lock document, and below the time.
func (w *page) drawing(p Play) {
	x := func(at time.Duration) float64 {
		return drawLeft + float64(at)/float64(p.Length)*(drawWidth-drawLeft-6)
	}
	lanes := len(p.Processes)
	tall := (lanes+1)*laneTall + 30
	w.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, drawWidth, tall,
		esc(strings.Join(p.Outcome.Parts(), ", ")))
	for i := range p.Processes {
		from, until := p.life(i)
		w.add(`<path class="life" d="M%.1f %dH%.1f"/>`, x(from), i*laneTall+10, x(until))
	}
	for _, b := range p.Bars {
		class := map[string]string{"waits": "wait", "holds": "hold", "hangs": "hang", "paused": "still", "cut": "cut", "two": "two"}[b.Kind]
		y, h := b.Process*laneTall+3, barTall
		if b.Kind == "cut" {
			y, h = y+barTall+1, 3
		}
		w.add(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s %s to %s</title></rect>`, class,
			x(b.From), y, max(1, x(min(b.Until, p.Length))-x(b.From)), h, class, Time(b.From), Time(b.Until))
	}
	w.named(p, x)
	from, until := p.zoomed()
	w.add(`<rect class="zoomed" x="%.1f" y="0" width="%.1f" height="%d"><title>the decisive seconds</title></rect>`,
		x(from)-2, max(4, x(until)-x(from)+4), (lanes+1)*laneTall-8)
	w.pings(p, x)
	w.marks(p, x)
	w.axis(p, x, (lanes+1)*laneTall-10)
	w.add(`<path class="cursor" d="M%d 0V%d"/>`, drawLeft, tall-16)
	w.names(p)
	w.add("</svg>")
}

// names writes whose the lanes are, over what else is drawn: they stay where a drawing is wider than the
// screen.
func (w *page) names(p Play) {
	w.add(`<g class="names"><rect width="%d" height="%d"/>`, drawLeft-6, (len(p.Processes)+1)*laneTall-8)
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
func (w *page) named(p Play, x func(time.Duration) float64) {
	top := len(p.Processes) * laneTall
	draw := func(who string, from, until time.Duration) {
		if who == "" {
			return
		}
		w.add(`<rect class="named" x="%.1f" y="%d" width="%.1f" height="%d"><title>the document names %s, %s to %s</title></rect>`,
			x(from), top+3, max(1, x(until)-x(from)), barTall, esc(who), Time(from), Time(until))
		if x(until)-x(from) > 12 {
			w.add(`<text class="who" x="%.1f" y="%d">%s</text>`, x(from)+3, top+14, esc(who))
		}
	}
	who, from := "", time.Duration(0)
	for _, v := range p.Versions {
		if v.Collection != locks || v.ID != lockName {
			continue
		}
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
		case m.Kind == "death" && m.Text == "dies":
			until = m.At
		}
	}
	return from, until
}

// pings draws the pings of each process below its bar: those at even distances as one dashed line.
func (w *page) pings(p Play, x func(time.Duration) float64) {
	beats := make([][]float64, len(p.Processes))
	for _, v := range p.Versions {
		if i := v.By; v.Collection == pings && i >= 0 && len(v.Fields) > 0 {
			if n := len(beats[i]); n == 0 || x(v.At)-beats[i][n-1] > 1.5 {
				beats[i] = append(beats[i], x(v.At))
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
			w.add(`<path class="beat" stroke-dasharray="1 %.2f" d="M%.1f %dH%.1f"/>`, gap-1, at[from], i*laneTall+23,
				at[until-1]+1)
			from = until
		}
	}
	for _, m := range p.Marks {
		if m.Kind == string(Ping) && m.Answer == errUnreachable.Error() {
			w.add(`<path class="failed dashed" d="M%.1f %dh%.1f"><title>pings fail</title></path>`, x(m.At),
				m.Process*laneTall+23, max(2, x(max(m.At, m.Until))-x(m.At)))
		}
	}
}

// marks draws what happened at an instant.
func (w *page) marks(p Play, x func(time.Duration) float64) {
	put := func(name string, at time.Duration, lane int, text string) {
		w.add(`<g transform="translate(%.1f %d)">%s<title>%s %s</title></g>`, x(at), lane*laneTall+10,
			glyph(name), Time(at), esc(text))
	}
	for _, m := range p.Marks {
		if m.Process < 0 {
			w.add(`<path class="event" d="M%.1f 0V%d"><title>%s %s</title></path>`, x(m.At),
				len(p.Processes)*laneTall+6, Time(m.At), esc(m.Text))
			continue
		}
		switch {
		case m.Kind == string(Take) && m.Changed:
			put("take", m.At, m.Process, "takeover: "+m.Answer)
		case m.Kind == "late":
			put("late", m.At, m.Process, m.Text)
		case m.Kind == "not released":
			put("unfreed", m.At, m.Process, m.Text)
		case strings.Contains(m.Answer, errNoReply.Error()):
			put("lost", m.At, m.Process, m.Text+": "+m.Answer)
		case m.Kind == "learns":
			put("learn", m.At, m.Process, m.Text)
		case m.Kind == "death":
			put("dies", m.At, m.Process, m.Text)
		case m.Kind == "clock step":
			put("clock", m.At, m.Process, m.Text)
		}
	}
	last := map[int]float64{}
	for _, s := range p.Writes {
		if s.Verdict == "written" || x(s.At)-last[s.Process] < 9 {
			continue
		}
		put(s.Verdict, s.At, s.Process, s.Verdict+" write")
		last[s.Process] = x(s.At)
	}
}

// axis draws the time of day, and the words of what happened to all.
func (w *page) axis(p Play, x func(time.Duration) float64, top int) {
	w.add(`<path class="axis" d="M%d %dH%d"/>`, drawLeft, top+8, drawWidth-6)
	const tick = 5 * time.Minute
	var ticks strings.Builder
	for at := time.Duration(0); at+tick/2 <= p.Length; at += tick {
		fmt.Fprintf(&ticks, "M%.0f %dv4", x(at), top+6)
		w.add(`<text class="hour" x="%.0f" y="%d">%s</text>`, x(at), top+22, noon.Add(at).Format("15:04"))
	}
	w.add(`<path class="axis" d="%s"/>`, ticks.String())
}
