package ui

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

//go:embed static
var static embed.FS

//go:embed templates
var sources embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"age": words.Age, "instant": words.Instant, "label": words.Label, "named": words.Named, "marks": words.Marks,
	"mode": words.Mode, "caller": words.Caller, "remedy": words.Remedy, "role": role, "lockHref": lockHref,
	"processHref": processHref, "color": color, "pulse": pulseOf, "breakHref": breakHref,
	"text":  func(s string) string { return words.Shown(s, 300) },
	"cell":  func(s string) string { return words.Shown(s, 120) },
	"proc":  func(s string) string { return words.Shown(words.Short(s), 80) },
	"plus":  func(a, b int) int { return a + b },
	"clock": func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"pct":   func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) + "%" },
}).ParseFS(sources, "templates/*.html"))

// A view is one page: what it shows of a state.
type view struct {
	path, title, name string
	key               string // of the keyboard; empty: it is not in the navigation
	show              func(*Server, *http.Request, *state) any
}

var views []view

func init() { // views and pages refer to each other
	views = []view{
		{"/{$}", "Locks", "locks", "1", (*Server).showLocks},
		{"/timeline", "Timeline", "timeline", "2", (*Server).showTimeline},
		{"/processes", "Processes", "processes", "3", (*Server).showProcesses},
		{"/elections", "Elections", "elections", "4", (*Server).showElections},
		{"/loops", "Loops", "loops", "5", (*Server).showLoops},
		{"/queues", "Queues", "queues", "6", (*Server).showQueues},
		{"/server", "Server", "server", "7", (*Server).showServer},
		{"/lock", "Lock", "lock", "", (*Server).showLock},
	}
}

// A layout is what surrounds a view.
type layout struct {
	Title, Name, Path string
	Nav               []navigation
	Hosts, Database   string
	AllowBreak        bool
	Problem           string // why what is shown may be old
	ProblemSince      string
	Old               string // how old it is
	Partial           bool
	Seq               int
	At                time.Time
	Interval          time.Duration
	Bad               []*distlock.MalformedError
	Data              any
}

// A navigation is one link of the navigation.
type navigation struct {
	Href, Title, Key string
	On               bool
}

func (s *Server) layout(r *http.Request, v view, now *state) layout {
	l := layout{Title: v.title, Name: v.name, Path: r.URL.RequestURI(), Hosts: s.cfg.Hosts, Database: s.cfg.Database,
		AllowBreak: s.cfg.AllowBreak, Problem: now.problem, Seq: now.seq, At: now.at, Interval: s.cfg.Interval,
		Partial: now.partial, Bad: now.bad}
	if now.problem != "" {
		l.ProblemSince = words.Instant(now.since)
		if !now.at.IsZero() {
			l.Old = words.Age(now.tried.Sub(now.at))
		}
	}
	for _, n := range views {
		if n.key != "" {
			l.Nav = append(l.Nav, navigation{strings.TrimSuffix(n.path, "{$}"), n.title, n.key, n.name == v.name})
		}
	}
	l.Data = v.show(s, r, now)
	return l
}

// page serves a view: whole, or as a stream of what changes to a browser that asks for one.
func (s *Server) page(v view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			s.stream(w, r, v)
			return
		}
		s.poller.fresh(r.Context(), s.cfg.Interval)
		now, _ := s.poller.now()
		s.write(w, http.StatusOK, "page", s.layout(r, v, now))
	}
}

// write makes a page whole before it sends any of it.
func (s *Server) write(w http.ResponseWriter, code int, name string, l layout) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, l); err != nil {
		http.Error(w, "this page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a browser that has gone needs no page
}

func lockHref(name string) string { return "/lock?name=" + url.QueryEscape(name) }

func processHref(id string) string { return "/processes?q=" + url.QueryEscape(id) }

func short500(s string) string { return catalog.Printable(s, 500) }

// A pulse is how old a ping is beside the takeover time, as a bar.
type pulse struct {
	Width int // in hundredths
	Class string
	Text  string
	Tip   string
}

// pulseOf judges a ping: late after three intervals, silent after the takeover time.
func pulseOf(i distlock.LockInfo) pulse {
	takeover := cmp.Or(i.Takeover, words.DefaultTakeover)
	p := pulse{Text: words.Age(i.PingAge), Class: "ok"}
	if !i.HasPing || i.PingAge < 0 {
		p.Class, p.Tip = "none", "no ping that can be understood"
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

// How many locks a page has, and how long a search may be.
const (
	perPage  = 50
	maxPage  = 200
	maxQuery = 1024
)

// A lockList is the page of all locks.
type lockList struct {
	Query, Show, Sort     string
	Rows                  []lockRow
	Shown, Found, Total   int
	Held, Waiting, Silent int
	First                 int
	Prev, Next            string
	Filters, Sorts        []choice
	Empty                 string
}

// A lockRow is one lock of a list.
type lockRow struct {
	*lock
	First  distlock.LockInfo
	Others int
	Marks  []string
}

func (s *Server) showLocks(r *http.Request, now *state) any {
	q := r.URL.Query()
	query, echo := typed(r)
	l := lockList{Query: echo, Show: q.Get("show"), Sort: q.Get("sort"), Total: len(now.locks)}
	var found []lockRow
	for _, k := range now.locks {
		row := lockRow{lock: k, First: k.Holders[0], Others: len(k.Holders) - 1,
			Marks: words.Marks(k.Holders[0])}
		suspect := k.Held() && dead(k.Holders)
		count(&l.Held, k.Held())
		count(&l.Waiting, len(k.Line) > 0)
		count(&l.Silent, suspect)
		switch {
		case l.Show == "" && !k.Held() && len(k.Line) == 0 && query == "", l.Show == "held" && !k.Held(),
			l.Show == "waited" && len(k.Line) == 0, l.Show == "silent" && !suspect, !matches(k, query):
			continue
		}
		found = append(found, row)
	}
	sortRows(found, l.Sort)
	l.Found = len(found)
	per := perPage
	if n, err := strconv.Atoi(q.Get("per")); err == nil && n > 0 {
		per = min(n, maxPage)
	}
	page, _ := strconv.Atoi(q.Get("page"))
	page = max(0, min(page, (l.Found-1)/per))
	l.First = page * per
	l.Rows = found[min(l.First, len(found)):min(l.First+per, len(found))]
	l.Shown = len(l.Rows)
	if page > 0 {
		l.Prev = with(r, "page", strconv.Itoa(page-1))
	}
	if l.First+per < l.Found {
		l.Next = with(r, "page", strconv.Itoa(page+1))
	}
	for _, c := range []struct{ value, word string }{{"", "In use"}, {"held", "Held"}, {"waited", "Waited for"},
		{"silent", "Silent"}, {"all", "All"}} {
		l.Filters = append(l.Filters, choice{c.word, with(r, "show", c.value, "page", ""), l.Show == c.value})
	}
	for _, c := range []struct{ value, word string }{{"", "Name"}, {"held", "Held for"}, {"ping", "Ping"},
		{"line", "Line"}} {
		l.Sorts = append(l.Sorts, choice{c.word, with(r, "sort", c.value, "page", ""), l.Sort == c.value})
	}
	if l.Found == 0 {
		l.Empty = "No lock is held or waited for."
		if query != "" || l.Show != "" {
			l.Empty = "No lock is like that."
		}
	}
	return l
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
}

// typed is what was searched for, bounded, and as it is shown again.
func typed(r *http.Request) (q, shown string) {
	q = r.URL.Query().Get("q")
	if runes := []rune(q); len(runes) > maxQuery {
		q = string(runes[:maxQuery])
	}
	return q, strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, q)
}

// dead reports whether a holder is silent or was declared dead.
func dead(holders []distlock.LockInfo) bool {
	return slices.ContainsFunc(holders, func(h distlock.LockInfo) bool {
		return h.Condemned || h.PingAge > cmp.Or(h.Takeover, words.DefaultTakeover)
	})
}

// matches reports whether a lock, its holders or their reasons contain what was searched for.
func matches(k *lock, q string) bool {
	if q == "" || contains(k.Name, q) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(k.Holders, k.Line), func(i distlock.LockInfo) bool {
		return contains(i.Process, q) || contains(i.Why, q)
	})
}

func contains(s, q string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q)) }

func sortRows(rows []lockRow, by string) {
	order := map[string]func(a, b lockRow) int{
		"held": func(a, b lockRow) int { return cmp.Compare(heldFor(b), heldFor(a)) },
		"ping": func(a, b lockRow) int { return cmp.Compare(b.First.PingAge, a.First.PingAge) },
		"line": func(a, b lockRow) int { return cmp.Compare(len(b.Line), len(a.Line)) },
	}[by]
	if order != nil {
		slices.SortStableFunc(rows, order)
	}
}

func heldFor(r lockRow) time.Duration {
	if !r.Held() {
		return -1
	}
	return r.First.Age
}

// with is the address of the same page with other values; an empty one is left out.
func with(r *http.Request, pairs ...string) string {
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

// A lockPage is the page of one lock.
type lockPage struct {
	Name       string
	Lock       *lock // nil when there is none
	Problem    string
	AllowBreak bool
	Graph      *graph
	Timeline   timeline
	Events     []eventRow
	More       bool
	Source     string
}

// An eventRow is an event of a list.
type eventRow struct {
	event
	Key, When, Class string
}

func eventRowOf(e event) eventRow {
	row := eventRow{event: e, When: e.At.UTC().Format("2006-01-02 15:04:05.0")}
	row.Key = fmt.Sprint(e.At.UnixNano(), e.Kind, e.Fence, e.Process)
	switch e.Kind {
	case takenOver:
		row.Class = "late"
	case lost, broken, leaseRanOut, dropped, evicted, missed:
		row.Class = "bad"
	case acquired, granted:
		row.Class = "line"
	}
	return row
}

// maxEvents is how many events the page of a lock shows.
const maxEvents = 100

func (s *Server) showLock(r *http.Request, now *state) any {
	p := lockPage{Name: r.URL.Query().Get("name"), AllowBreak: s.cfg.AllowBreak}
	p.Lock = now.named[p.Name]
	if p.Lock == nil && now.partial && now.problem == "" {
		p.Lock, p.Problem = s.one(r.Context(), p.Name)
	}
	p.Graph = now.waits().draw(p.Name)
	events, source := s.events(r.Context(), p.Name)
	p.Source = source
	few := &listing{}
	if p.Lock != nil {
		few.locks = []*lock{p.Lock}
	}
	p.Timeline = s.timeline(r, now, holdings(events, few, p.Name), true)
	slices.Reverse(events)
	p.More = len(events) > maxEvents
	for _, e := range events[:min(len(events), maxEvents)] {
		p.Events = append(p.Events, eventRowOf(e))
	}
	return p
}

// one reads a lock that a listing has left out.
func (s *Server) one(ctx context.Context, name string) (*lock, string) {
	holders, line, err := s.cfg.Inspector.Holder(ctx, name)
	switch {
	case err != nil:
		return nil, s.problem(err)
	case len(holders) == 0:
		return nil, ""
	}
	return &lock{name, holders, line}, ""
}

func (s *Server) showTimeline(r *http.Request, now *state) any {
	events, source := s.events(r.Context(), "")
	t := s.timeline(r, now, holdings(events, now.listing, ""), false)
	t.Source = source
	return t
}

// timeline draws the window that was asked for: how long, and until when.
func (s *Server) timeline(r *http.Request, now *state, all []*holding, byProcess bool) timeline {
	at := slices.IndexFunc(spans, func(c struct {
		Word string
		D    time.Duration
	}) bool {
		return c.Word == r.URL.Query().Get("span")
	})
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
	t := draw(all, window{end.Add(-d), end}, byProcess)
	for i, c := range spans {
		t.Choices = append(t.Choices, choice{c.Word, with(r, "span", c.Word), i == at})
	}
	t.Earlier = with(r, "until", strconv.FormatInt(end.Add(-d/2).Unix(), 10))
	if !live {
		t.Later, t.Live = with(r, "until", strconv.FormatInt(end.Add(d/2).Unix(), 10)), with(r, "until",
			"")
	}
	if at > 0 {
		t.Closer = with(r, "span", spans[at-1].Word)
	}
	if at < len(spans)-1 {
		t.Wider = with(r, "span", spans[at+1].Word)
	}
	return t
}
