package ui

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"hash/crc32"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/singleton"
)

//go:embed static
var static embed.FS

//go:embed templates
var sources embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"age": words.Age, "instant": words.Instant, "label": words.Label, "named": words.Named, "marks": words.Marks,
	"mode": words.Mode, "caller": words.Caller, "remedy": words.Remedy, "role": words.Role,
	"lockHref":    lockHref,
	"processHref": processHref, "color": colorOf, "pulse": pulseOf, "breakHref": breakHref,
	"deadHref": deadHref, "span": words.Span, "sentence": sentence, "classOf": classOf,
	"roundTitle": roundTitle, "several": several, "backward": slices.Backward[[]singleton.PastRun],
	"first": func(all []distlock.LockInfo) []distlock.LockInfo { return all[:min(len(all), maxNamed)] },
	"more":  func(all []distlock.LockInfo) int { return max(0, len(all)-maxNamed) },
	"text":  func(s string) string { return words.Shown(s, 300) },
	"long":  func(s string) bool { return len([]rune(s)) > 160 },
	"cell":  func(s string) string { return words.Shown(s, 120) },
	"proc":  procName,
	"whole": func(s string) string { return words.Shown(s, 2_000) },
	"brief": brief,
	"plus":  func(a, b int) int { return a + b },
	"clock": func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"pct":   func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) + "%" },
}).ParseFS(sources, "templates/*.html"))

func brief(name string) string { return words.Middle(words.Label(name), 80) }

// procName returns a short name of a process. It keeps the beginning and the end, because the names
// of pods differ at the end.
func procName(id string) string { return words.Middle(words.Shown(words.Short(id), 2_000), 36) }

// A view is one page of the navigation, or the page of one lock.
type view struct {
	Path, Title, Name string
	Key               string // the shortcut; empty for a view outside the navigation
	show              func(*Server, *http.Request, state) content
}

// ofLocks returns a function that displays the latest listing in a view. The given function formats
// the listing.
func ofLocks(
	show func(*Server, *http.Request, *listing) any) func(*Server, *http.Request, state) content {
	return func(s *Server, r *http.Request, now state) content {
		c := contentOf(now, func(l *listing) any { return show(s, r, l) })
		c.Problem = "" // every page shows the problem at the top
		return c
	}
}

var views []view

func init() { // init prevents an initialization cycle
	views = []view{
		{"/", "Locks", "locks", "1", ofLocks((*Server).showLocks)},
		{"/timeline", "Timeline", "timeline", "2", ofLocks((*Server).showTimeline)},
		{"/processes", "Processes", "processes", "3", ofLocks((*Server).showProcesses)},
		{"/elections", "Elections", "elections", "4", ofLocks((*Server).showElections)},
		{"/loops", "Loops", "loops", "5", (*Server).showLoops},
		{"/queues", "Queues", "queues", "6", (*Server).showQueues},
		{"/server", "Server", "server", "7", (*Server).showServer},
		{"/lock", "Lock", "lock", "", ofLocks((*Server).showLock)},
	}
}

type layout struct {
	view
	Views           []view
	Address         string // path and query of the request
	Hosts, Database string
	AllowBreak      bool
	Problem         string    // the reason why the data may be old
	Since           time.Time // of the Problem
	Partial         bool
	Void            string // the message for a database without locks
	Seq             int
	At              time.Time
	Bad             []*distlock.MalformedError
	Content         content
}

func (s *Server) layout(r *http.Request, v view, now state) layout {
	l := layout{view: v, Views: views, Address: r.URL.RequestURI(), Hosts: s.cfg.Hosts,
		Database: s.cfg.Database, AllowBreak: s.cfg.AllowBreak, Problem: now.problem, Since: now.since,
		Seq: now.seq, At: now.at, Content: v.show(s, r, now)}
	if found := now.value; found != nil {
		l.Partial, l.Bad, l.Void = found.Partial, found.Malformed, found.void
	}
	return l
}

// page serves a view as a whole page. If the browser requests an event stream, it gets a stream of
// updates instead.
func (s *Server) page(v view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			s.stream(w, r, v)
			return
		}
		s.write(w, http.StatusOK, "page", s.layout(r, v, s.locks.get(r.Context(), s, s.read)))
	}
}

// write renders the whole page before it sends the first byte, so that an error can still change
// the status.
func (s *Server) write(w http.ResponseWriter, code int, name string, l layout) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, l); err != nil {
		http.Error(w, "this page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a disconnected browser needs no page
}

// colorOf returns the number of a process's color in the style sheet.
func colorOf(process string) uint32 {
	const colors = 16
	return crc32.ChecksumIEEE([]byte(process)) % colors
}

func lockHref(name string) string { return "/lock?name=" + url.QueryEscape(name) }

func processHref(id string) string { return "/processes?q=" + url.QueryEscape(id) }

// A figure is a number with a link to the list of the counted items.
type figure struct {
	Word, Href string
	N          string // a dash if it is unknown
	Class      string // "bad" or "late" for trouble
	On         bool
}

// A filter selects rows of a page.
type filter[T any] struct {
	value, word string // of the parameter "show", and of the figure
	class       string // of a positive figure
	is          func(T) bool
}

// filtered returns a figure for each filter, and the rows that the request selects.
func filtered[T any](r *http.Request, all []T, filters []filter[T]) (figures []figure, shown []T) {
	shown = all
	for _, f := range filters {
		one := newFigure(f.word, urlWith(r, "show", f.value), howMany(all, f.is), f.class)
		if one.On = r.URL.Query().Get("show") == f.value; one.On {
			shown = slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !f.is(one) })
		}
		figures = append(figures, one)
	}
	return figures, shown
}

func howMany[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

// newFigure returns a figure for the number n. The CSS class applies only if n is positive.
func newFigure(word, href string, n int, class string) figure {
	if n <= 0 {
		class = ""
	}
	return figure{Word: word, Href: href, N: strconv.Itoa(n), Class: class}
}

// A pager describes the part of a list that a page shows.
type pager struct {
	First, Last, Total int // positions from 0; Last is the first position after the part
	Prev, Next         string
}

func newPager(r *http.Request, total, perPage int) pager {
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	p := pager{First: max(0, min(from, (total-1)/perPage*perPage)), Total: total}
	p.Last = min(p.First+perPage, total)
	if p.First > 0 {
		p.Prev = urlWith(r, "from", strconv.Itoa(max(0, p.First-perPage)))
	}
	if p.Last < total {
		p.Next = urlWith(r, "from", strconv.Itoa(p.Last))
	}
	return p
}

func several(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}

// A pulse is a bar that shows the age of a ping, relative to the takeover time.
type pulse struct {
	Width int // in hundredths
	Class string
	Text  string
	Tip   string
}

// pulseOf classifies a ping. A ping is late if it is older than three ping intervals and older than
// a quarter of the takeover time. It is bad if it is as old as the takeover time, or if the process
// was declared dead.
func pulseOf(i distlock.LockInfo) pulse {
	takeover := cmp.Or(i.Takeover, words.DefaultTakeover)
	p := pulse{Text: words.Age(i.PingAge), Class: "ok"}
	if !i.HasPing || i.PingAge < 0 {
		p.Class, p.Tip = "none", "no valid ping, or its age is unknown"
		return p
	}
	p.Width = int(min(100, 100*i.PingAge/takeover))
	switch {
	case i.Condemned, i.PingAge >= takeover:
		p.Class, p.Width = "bad", 100
	case i.PingAge > max(3*i.PingEvery, takeover/4):
		p.Class = "late"
	}
	p.Tip = fmt.Sprintf("%v of the takeover time of %v", p.Text, takeover)
	if i.PingEvery > 0 {
		p.Tip += fmt.Sprintf("; it pings every %v", i.PingEvery)
	}
	return p
}

// urlWith returns the address of the requested page with a changed query parameter. An empty value
// removes the parameter. The requested list begins at its first part.
func urlWith(r *http.Request, name, value string) string {
	q := r.URL.Query()
	q.Del("from")
	q.Set(name, value)
	if value == "" {
		q.Del(name)
	}
	if len(q) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + q.Encode()
}
