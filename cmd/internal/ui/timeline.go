package ui

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
)

const (
	maxBands = 60
	maxBars  = 400 // in one band
)

type span struct {
	Word    string
	D, Step time.Duration // the length, and the distance of the marks of the time axis
}

// spans lists the selectable lengths of the timeline, the shortest first.
var spans = []span{
	{"10s", 10 * time.Second, 2 * time.Second}, {"1m", time.Minute, 10 * time.Second},
	{"5m", 5 * time.Minute, time.Minute}, {"15m", 15 * time.Minute, 2 * time.Minute},
	{"1h", time.Hour, 10 * time.Minute}, {"6h", 6 * time.Hour, time.Hour},
	{"1d", 24 * time.Hour, 3 * time.Hour}, {"7d", 7 * 24 * time.Hour, 24 * time.Hour},
}

// roomForName is the minimum width of a bar with a name, in hundredths of the timeline.
const roomForName = 4

// A bar is the drawing of one holding. Positions and widths are hundredths of the width of the
// timeline.
type bar struct {
	X, W        float64
	Process     string
	Named       bool // the bar has room for a name
	Tip         string
	Begun       string // taken over, or empty
	Ended       string // the kind of an abnormal end, or empty
	Open        bool
	Dead        bool    // the present holder is dead or silent
	Start, Stop float64 // positions of the marks
}

type band struct {
	Label  string
	Title  string // the whole label
	Href   string
	Bars   []bar
	latest time.Time

	trouble, waiters int // the maximum of the holdings
}

type tick struct {
	X    float64
	Text string
}

type timeline struct {
	Past     content // a note about the history
	Bands    []*band
	Ticks    []tick
	Choices  []choice
	Earlier  string
	Later    string
	Live     string // the address of the live timeline; empty if this timeline is live
	From, To string
	More     int // omitted bands
}

type choice struct {
	Word, Href string
	On         bool
	Key        string // the shortcut, or empty
}

func (s *Server) showTimeline(r *http.Request, now *listing) any {
	return newTimeline(r, now.Now, s.past(r.Context(), ""), now.Locks, false)
}

// newTimeline draws the timeline with the length and the end that the request selects. It has a
// band for each lock or each process.
func newTimeline(r *http.Request, now time.Time, read reading[past], present []*census.Lock,
	byProcess bool) timeline {
	at := slices.IndexFunc(spans, func(c span) bool { return c.Word == r.URL.Query().Get("span") })
	if at < 0 {
		at = 2
	}
	end, live := now, true
	if until, err := strconv.ParseInt(r.URL.Query().Get("until"), 10, 64); err == nil && until > 0 &&
		until < end.Unix() {
		end, live = time.Unix(until, 0).UTC(), false
	}
	d := spans[at].D
	w := window{end.Add(-d), end}
	t := timeline{Past: contentOf(read, past.note), From: words.Instant(w.from),
		To: words.Instant(w.to), Ticks: w.ticks(spans[at].Step)}
	t.draw(holdings(read.value, present), w, byProcess)
	for i, c := range spans {
		key := map[int]string{at - 1: "+", at + 1: "-"}[i]
		t.Choices = append(t.Choices, choice{c.Word, urlWith(r, "span", c.Word), i == at, key})
	}
	t.Earlier = urlWith(r, "until", strconv.FormatInt(end.Add(-d/2).Unix(), 10))
	if !live {
		t.Later = urlWith(r, "until", strconv.FormatInt(end.Add(d/2).Unix(), 10))
		t.Live = urlWith(r, "until", "")
	}
	return t
}

// draw adds the bands with the holdings in the window. If there are too many bands, those in
// trouble stay, and then those with the latest holdings.
func (t *timeline) draw(all []*holding, w window, byProcess bool) {
	found := map[string]*band{}
	for _, h := range all {
		end := h.to
		if !h.over() || end.After(w.to) {
			end = w.to
		}
		if h.from.IsZero() || h.from.After(w.to) || end.Before(w.from) {
			continue
		}
		name := h.lock
		if byProcess {
			name = h.process
		}
		b := found[name]
		if b == nil {
			b = &band{Label: brief(name), Title: words.Label(name), Href: lockHref(name)}
			if byProcess {
				b = &band{Label: procName(name), Title: words.Shown(name, 200), Href: processHref(name)}
			}
			found[name] = b
			t.Bands = append(t.Bands, b)
		}
		if end.After(b.latest) {
			b.latest = end
		}
		b.trouble, b.waiters = max(b.trouble, h.trouble), max(b.waiters, h.waiters)
		b.Bars = append(b.Bars, h.bar(w, end))
	}
	slices.SortStableFunc(t.Bands, func(a, b *band) int {
		return cmp.Or(b.trouble-a.trouble, b.latest.Compare(a.latest))
	})
	t.More = max(0, len(t.Bands)-maxBands)
	t.Bands = t.Bands[:len(t.Bands)-t.More]
	slices.SortStableFunc(t.Bands, func(a, b *band) int {
		return cmp.Or(b.trouble-a.trouble, b.waiters-a.waiters, strings.Compare(a.Label, b.Label))
	})
	for _, b := range t.Bands {
		b.Bars = b.Bars[max(0, len(b.Bars)-maxBars):]
	}
}

func (h *holding) bar(w window, end time.Time) bar {
	x, stop := w.x(h.from), w.x(end)
	b := bar{
		X: max(0, x), Process: h.process, Open: !h.over(), Dead: h.trouble == 2, Start: x, Stop: stop,
	}
	b.W = max(0.15, stop-b.X)
	b.Named = b.W >= roomForName
	if h.begun == words.TakenOver && x >= 0 {
		b.Begun = h.begun
	}
	if classOf(h.ended) == "bad" {
		b.Ended = h.ended
	}
	until := "now"
	if h.over() {
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

// x returns the position of an instant, in hundredths of the width of the timeline.
func (w window) x(t time.Time) float64 {
	return 100 * float64(t.Sub(w.from)) / float64(w.to.Sub(w.from))
}

// ticks returns the marks of the time axis.
func (w window) ticks(step time.Duration) (all []tick) {
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
