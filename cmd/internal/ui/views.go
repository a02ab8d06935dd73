package ui

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

//go:embed static
var static embed.FS

//go:embed templates
var sources embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"age": words.Age, "instant": words.Instant, "label": words.Label, "named": words.Named, "marks": words.Marks,
	"mode": words.Mode, "caller": words.Caller, "remedy": words.Remedy, "role": words.Role,
	"lockHref":    lockHref,
	"processHref": processHref, "color": new(palette).color, "pulse": pulseOf, "breakHref": breakHref,
	"deadHref": deadHref, "span": words.Span,
	"roundTitle": roundTitle, "several": several,
	"rows":  func(n int64) string { return several(int(n), "row") },
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
func procName(id string) string { return words.Middle(words.Shown(words.Short(id), 200), 36) }

// A view is one page of the navigation, or the page of one lock.
type view struct {
	path, title, name string
	key               string // the shortcut; empty for a view outside the navigation
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
		{"/{$}", "Locks", "locks", "1", ofLocks((*Server).showLocks)},
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
	Title, Name, Path string
	Nav               []navigation
	Hosts, Database   string
	AllowBreak        bool
	Problem           string // the reason why the data may be old
	ProblemSince      string
	Old               string // the age of the data
	Partial           bool
	Void              string // the message for a database without locks
	Seq               int
	At                time.Time
	Bad               []*distlock.MalformedError
	Content           content
}

type navigation struct {
	Href, Title, Key string
	On               bool
}

func (s *Server) layout(r *http.Request, v view, now state) layout {
	l := layout{Title: v.title, Name: v.name, Path: r.URL.RequestURI(), Hosts: s.cfg.Hosts,
		Database: s.cfg.Database, AllowBreak: s.cfg.AllowBreak, Problem: now.problem, Seq: now.seq,
		At: now.at}
	contentOf(now, func(found *listing) any {
		l.Partial, l.Bad, l.Void = found.partial, found.bad, found.void
		return nil
	})
	if now.problem != "" {
		l.ProblemSince = words.Instant(now.since)
		if old := now.old(); old > 0 {
			l.Old = words.Age(old)
		}
	}
	for _, n := range views {
		if n.key != "" {
			l.Nav = append(l.Nav,
				navigation{strings.TrimSuffix(n.path, "{$}"), n.title, n.key, n.name == v.name})
		}
	}
	l.Content = v.show(s, r, now)
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
	if err := s.templates.ExecuteTemplate(&b, name, l); err != nil {
		http.Error(w, "this page cannot be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a disconnected browser needs no page
}

func lockHref(name string) string { return "/lock?name=" + url.QueryEscape(name) }

func processHref(id string) string { return "/processes?q=" + url.QueryEscape(id) }

// A figure is a number with a link to the list of the counted items.
type figure struct {
	Word, Href string
	N          string
	Class      string // "bad" or "late" for trouble
	On         bool
}

// figureOf returns a figure for the number n, which is unknown if negative. The CSS class applies
// only if n is positive.
func figureOf(r *http.Request, word, show string, n int, class string) figure {
	if n <= 0 {
		class = ""
	}
	text := "-"
	if n >= 0 {
		text = strconv.Itoa(n)
	}
	return figure{word, urlWith(r, "show", show, "page", ""), text, class,
		r.URL.Query().Get("show") == show}
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
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

// urlWith returns the address of the requested page with changed query parameters. The pairs are
// names and values in turn. An empty value removes the parameter.
func urlWith(r *http.Request, pairs ...string) string {
	q := r.URL.Query()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	if len(q) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + q.Encode()
}

func (s *Server) showTimeline(r *http.Request, now *listing) any {
	events, source, _ := s.events(r.Context(), "")
	t := s.timeline(r, now, holdings(events, now, ""), false)
	t.Source = source
	return t
}

// timeline draws the timeline with the length and the end that the request selects.
func (s *Server) timeline(r *http.Request, now *listing, all []*holding, byProcess bool) timeline {
	at := slices.IndexFunc(spans, func(c span) bool { return c.Word == r.URL.Query().Get("span") })
	if at < 0 {
		at = 2
	}
	end := cmp.Or(now.now, s.clock.Now().Wall)
	live := true
	if until, err := strconv.ParseInt(r.URL.Query().Get("until"), 10, 64); err == nil && until > 0 &&
		until < end.Unix() {
		end, live = time.Unix(until, 0).UTC(), false
	}
	d := spans[at].D
	t := newTimeline(all, window{end.Add(-d), end}, byProcess, &s.palette)
	for i, c := range spans {
		t.Choices = append(t.Choices, choice{c.Word, urlWith(r, "span", c.Word), i == at})
	}
	t.Earlier = urlWith(r, "until", strconv.FormatInt(end.Add(-d/2).Unix(), 10))
	if !live {
		t.Later = urlWith(r, "until", strconv.FormatInt(end.Add(d/2).Unix(), 10))
		t.Live = urlWith(r, "until", "")
	}
	if at > 0 {
		t.Closer = urlWith(r, "span", spans[at-1].Word)
	}
	if at < len(spans)-1 {
		t.Wider = urlWith(r, "span", spans[at+1].Word)
	}
	return t
}
