package study

import (
	"fmt"
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

// drawing draws a play: a lane for each process, and below the server with the time.
func (w *page) drawing(p Play) {
	x := func(at time.Duration) float64 {
		return drawLeft + float64(at)/float64(p.Length)*(drawWidth-drawLeft-6)
	}
	lanes := len(p.Processes)
	tall := lanes*laneTall + 40
	w.add(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, drawWidth, tall,
		esc(strings.Join(p.Outcome.Parts(), ", ")))
	for i, proc := range p.Processes {
		top := i * laneTall
		w.add(`<text x="2" y="%d">%s</text>`, top+14, esc(proc.Name))
		if proc.Clock != "" {
			w.add(`<text class="wrong" x="2" y="%d">%s</text>`, top+25, esc(proc.Clock))
		}
		from, until := p.life(i)
		w.add(`<path class="life" d="M%.1f %dH%.1f"/>`, x(from), top+10, x(until))
	}
	for _, b := range p.Bars {
		class := map[string]string{"holds": "hold", "hangs": "hang", "paused": "still", "cut": "cut"}[b.Kind]
		y, h := b.Process*laneTall+3, barTall
		if b.Kind == "cut" {
			y, h = y+barTall+1, 3
		}
		w.add(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s %s to %s</title></rect>`, class,
			x(b.From), y, max(1, x(min(b.Until, p.Length))-x(b.From)), h, class, Time(b.From), Time(b.Until))
	}
	for _, o := range p.overlaps() {
		for _, lane := range o.processes {
			w.add(`<rect class="two" x="%.1f" y="%d" width="%.1f" height="%d"><title>two holders %s to %s</title></rect>`,
				x(o.from), lane*laneTall+3, max(1, x(o.until)-x(o.from)), barTall, Time(o.from), Time(o.until))
		}
	}
	w.pings(p, x)
	w.marks(p, x)
	w.axis(p, x, lanes*laneTall)
	w.add(`<path class="cursor" d="M%d 0V%d"/></svg>`, drawLeft, tall-16)
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

type overlap struct {
	from, until time.Duration
	processes   []int
}

// overlaps are the stretches in which two that ran took themselves for the holder.
func (p Play) overlaps() (found []overlap) {
	var held []Bar
	for _, b := range p.Bars {
		if b.Kind == "holds" {
			held = append(held, b)
		}
	}
	for i, a := range held {
		for _, b := range held[i+1:] {
			for _, s := range p.running(b.Process, p.running(a.Process, []Bar{{
				From: max(a.From, b.From), Until: min(a.Until, b.Until)}})) {
				if a.Process != b.Process && s.From < s.Until {
					found = append(found, overlap{s.From, s.Until, []int{a.Process, b.Process}})
				}
			}
		}
	}
	return found
}

// running takes the time in which a process stood still out of some stretches.
func (p Play) running(process int, stretches []Bar) []Bar {
	for _, still := range p.Bars {
		if still.Process != process || still.Kind != "paused" {
			continue
		}
		var left []Bar
		for _, s := range stretches {
			left = append(left, Bar{From: s.From, Until: min(s.Until, still.From)},
				Bar{From: max(s.From, still.Until), Until: s.Until})
		}
		stretches = left
	}
	return stretches
}

// pings draws the pings of each process below its bar.
func (w *page) pings(p Play, x func(time.Duration) float64) {
	good, failed := make([]strings.Builder, len(p.Processes)), make([]strings.Builder,
		len(p.Processes))
	last := make([]float64, len(p.Processes))
	for _, v := range p.Versions {
		if i := v.By; v.Collection == pings && i >= 0 && len(v.Fields) > 0 && x(v.At)-last[i] > 1.5 {
			fmt.Fprintf(&good[i], "M%.1f %dv6", x(v.At), i*laneTall+20)
			last[i] = x(v.At)
		}
	}
	for _, m := range p.Marks {
		if m.Kind == string(Ping) && m.Answer == errUnreachable.Error() {
			fmt.Fprintf(&failed[m.Process], "M%.1f %dh%.1f", x(m.At), m.Process*laneTall+23,
				max(2, x(max(m.At, m.Until))-x(m.At)))
		}
	}
	for i := range p.Processes {
		if d := good[i].String(); d != "" {
			w.add(`<path class="ping" d="%s"/>`, d)
		}
		if d := failed[i].String(); d != "" {
			w.add(`<path class="failed dashed" d="%s"><title>pings fail</title></path>`, d)
		}
	}
}

// marks draws what happened at an instant.
func (w *page) marks(p Play, x func(time.Duration) float64) {
	put := func(glyph string, at time.Duration, lane int, text string) {
		w.add(`<g transform="translate(%.1f %d)">%s<title>%s %s</title></g>`, x(at), lane*laneTall+10,
			glyphs[glyph], Time(at), esc(text))
	}
	for _, m := range p.Marks {
		if m.Process < 0 {
			w.add(`<path class="event" d="M%.1f 0V%d"><title>%s %s</title></path>`, x(m.At),
				len(p.Processes)*laneTall+6, Time(m.At), esc(m.Text))
			continue
		}
		switch {
		case m.Kind == string(Take) && m.Answer != "n: 0" && !strings.HasPrefix(m.Answer, "no "):
			put("take", m.At, m.Process, "takeover: "+m.Answer)
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
	for at := time.Duration(0); at+tick/2 <= p.Length; at += tick {
		w.add(`<path class="axis" d="M%.1f %dv4"/><text class="hour" x="%.1f" y="%d">%s</text>`, x(at), top+6, x(at),
			top+22, noon.Add(at).Format("15:04"))
	}
}
