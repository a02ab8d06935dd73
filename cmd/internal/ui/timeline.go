package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/cmd/internal/words"
)

const (
	maxBands = 60
	maxBars  = 400 // in one band
)

type span struct {
	Word string
	D    time.Duration
}

// spans lists the selectable lengths of the timeline, the shortest first.
var spans = []span{
	{"10s", 10 * time.Second}, {"1m", time.Minute}, {"5m", 5 * time.Minute}, {"15m", 15 * time.Minute},
	{"1h", time.Hour}, {"6h", 6 * time.Hour}, {"1d", 24 * time.Hour}, {"7d", 7 * 24 * time.Hour},
}

// A holding is one period in which a process held a lock.
type holding struct {
	lock, process, why string
	fence              int64
	from, to           time.Time // to is zero while the lock is held
	begun, ended       string    // the event kinds of its beginning and end; empty when unknown
}

func (h *holding) over() bool { return !h.to.IsZero() }

// unknownEnd is the displayed duration of a holding with an unknown end.
const unknownEnd = 100 * time.Millisecond

// holdings computes the holdings from events and from the present holders. The events must be
// sorted, the oldest first. If the given name of a lock is not empty, only the present holders of
// this lock count.
func holdings(events []event, now *listing, of string) []*holding {
	known, open := map[holdingKey]*holding{}, map[string][]*holding{}
	var all []*holding
	get := func(k holdingKey, process string, fence int64) *holding {
		if known[k] == nil {
			known[k] = &holding{lock: k.lock, process: process}
			all = append(all, known[k])
		}
		known[k].fence = max(known[k].fence, fence)
		return known[k]
	}
	for _, e := range events {
		switch e.what() {
		case begins:
			h := get(e.holding(), e.Process, e.Fence)
			h.from, h.begun, h.why = e.At, e.Kind, e.Why
			for _, old := range open[e.Name] {
				if e.Kind == words.TakenOver && old.process == e.Previous && old.to.IsZero() && old != h {
					old.to, old.ended = e.At, e.Kind
				}
			}
			open[e.Name] = append(slices.DeleteFunc(open[e.Name], (*holding).over), h)
		case ends:
			if e.Fence == 0 && known[e.holding()] == nil {
				continue // the process only waited
			}
			h := get(e.holding(), cmp.Or(e.Previous, e.Process), e.Fence)
			if h.over() {
				continue // lost, and then released
			}
			h.to, h.ended = e.At, e.Kind
			if h.from.IsZero() {
				h.from = e.At.Add(-words.Span(e.HeldMS))
			}
		}
	}
	for _, h := range all { // holdings with an unknown end
		if !h.over() {
			h.to, h.ended = h.from.Add(unknownEnd), "its end is not known"
		}
	}
	for _, k := range now.locks {
		for _, i := range k.Holders {
			if i.Held && !i.Since.IsZero() && (of == "" || of == k.Name) {
				h := get(keyOf(k.Name, i.Session, i.Process, i.Fence), i.Process, i.Fence)
				h.from, h.to, h.why, h.ended = i.Since, time.Time{}, i.Why, ""
			}
		}
	}
	return all
}

// roomForName is the minimum width of a bar with a name, in hundredths of the timeline.
const roomForName = 4

// A bar is the drawing of one holding. Positions and widths are hundredths of the width of the
// timeline.
type bar struct {
	X, W        float64
	Color       int
	Name        string // the process, if the bar has room for its name
	Tip         string
	Begun       string // taken over, or empty
	Ended       string // the kind of an abnormal end, or empty
	Open        bool
	Start, Stop float64 // positions of the marks
	of          *holding
}

type band struct {
	Label  string
	Title  string // the whole label
	Href   string
	Bars   []bar
	latest time.Time
}

// setColors colors the bars. Consecutive bars of different processes have different colors.
func (b *band) setColors(p *palette) {
	order := make([]*bar, len(b.Bars))
	for i := range order {
		order[i] = &b.Bars[i]
	}
	slices.SortStableFunc(order, func(x, y *bar) int { return x.of.from.Compare(y.of.from) })
	for n := 1; n < len(order); n++ {
		p.color(order[n].of.process, order[n-1].of.process)
	}
	for n, one := range order {
		one.Color = p.color(one.of.process)
		if n > 0 && one.Color == order[n-1].Color && one.of.process != order[n-1].of.process {
			one.Color = (one.Color + 1) % colors // the process got this color after it was compared
		}
	}
}

type tick struct {
	X    float64
	Text string
}

type timeline struct {
	Bands    []band
	Ticks    []tick
	Choices  []choice
	Earlier  string
	Later    string
	Live     string // the address of the live timeline; empty if this timeline is live
	Closer   string
	Wider    string
	From, To string
	More     int // omitted bands
	Source   string
}

type choice struct {
	Word, Href string
	On         bool
}

func newTimeline(all []*holding, w window, byProcess bool, p *palette) timeline {
	t := timeline{From: words.Instant(w.from), To: words.Instant(w.to)}
	found := map[string]*band{}
	var order []*band
	for _, h := range all {
		end := h.to
		if end.IsZero() || end.After(w.to) {
			end = w.to
		}
		if h.from.IsZero() || !end.After(w.from) && !h.from.Equal(end) || h.from.After(w.to) ||
			end.Before(w.from) {
			continue
		}
		name, href := h.lock, lockHref(h.lock)
		if byProcess {
			name, href = h.process, processHref(h.process)
		}
		b := found[name]
		if b == nil {
			b = &band{Label: brief(name), Title: words.Label(name), Href: href}
			if byProcess {
				b.Label, b.Title = procName(name), words.Shown(name, 200)
			}
			found[name] = b
			order = append(order, b)
		}
		if end.After(b.latest) {
			b.latest = end
		}
		b.Bars = append(b.Bars, h.bar(w, end))
	}
	slices.SortStableFunc(order, func(a, b *band) int { return b.latest.Compare(a.latest) })
	t.More = max(0, len(order)-maxBands)
	order = order[:min(len(order), maxBands)]
	slices.SortStableFunc(order, func(a, b *band) int { return strings.Compare(a.Label, b.Label) })
	for _, b := range order {
		if len(b.Bars) > maxBars {
			b.Bars = b.Bars[len(b.Bars)-maxBars:]
		}
		b.setColors(p)
		t.Bands = append(t.Bands, *b)
	}
	t.Ticks = w.ticks()
	return t
}

func (h *holding) bar(w window, end time.Time) bar {
	x, stop := w.x(h.from), w.x(end)
	b := bar{X: max(0, x), Open: h.to.IsZero(), Start: x, Stop: stop, of: h}
	if b.W = max(0.15, stop-b.X); b.W >= roomForName {
		b.Name = procName(h.process)
	}
	if h.begun == words.TakenOver && x >= 0 {
		b.Begun = h.begun
	}
	switch h.ended {
	case words.Lost, words.Broken, words.Dropped, words.Evicted:
		b.Ended = h.ended
	}
	until := "now"
	if !h.to.IsZero() {
		until = h.to.UTC().Format("15:04:05.0")
	}
	b.Tip = fmt.Sprintf("%s, %s\n%s to %s, %s, fence %d", words.Label(h.lock), words.Shown(h.process,
		120), h.from.UTC().Format("15:04:05.0"), until, words.Age(max(0, end.Sub(h.from))), h.fence)
	if h.why != "" {
		b.Tip += "\nwhy: " + words.Shown(h.why, 120)
	}
	for _, kind := range []string{h.begun, h.ended} {
		if kind != "" {
			b.Tip += "\n" + kind
		}
	}
	return b
}

type window struct{ from, to time.Time }

// The result is the position of an instant, in hundredths of the width of the timeline.
func (w window) x(t time.Time) float64 {
	return 100 * float64(t.Sub(w.from)) / float64(w.to.Sub(w.from))
}

// ticks returns at most nine marks of the time axis, at round times.
func (w window) ticks() (all []tick) {
	step := time.Second
	for _, d := range []time.Duration{2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 2 * 3600,
		3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600} {
		if w.to.Sub(w.from) <= 8*step {
			break
		}
		step = d * time.Second
	}
	format := "15:04"
	switch {
	case step < time.Minute:
		format = "15:04:05"
	case step >= 6*time.Hour:
		format = "Jan 2 15:04"
	}
	for at := w.from.Truncate(step).Add(step); at.Before(w.to); at = at.Add(step) {
		if x := w.x(at); x > 2 && x < 97 {
			all = append(all, tick{x, at.UTC().Format(format)})
		}
	}
	return all
}
