package ui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mongodlm/cmd/internal/outlook"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// perPage is the default number of locks on a page, and maxPage is the largest number. maxQuery is
// the largest length of a search text, in runes.
const (
	perPage  = 50
	maxPage  = 200
	maxQuery = 1024
)

type lockList struct {
	Query, Show, Sort string
	Figures           []figure
	Rows              []lockRow
	First, Found      int
	Prev, Next        string
	Filters, Sorts    []choice
	Empty             string
}

type lockRow struct {
	*lock
	First   distlock.LockInfo // the holder in trouble, if the lock has one
	Others  int
	Trouble int // see [words.Trouble]
}

var lockFilters = []struct {
	value, word string
	is          func(lockRow) bool
}{
	{"", "In use", func(k lockRow) bool { return k.Held() || len(k.Queue) > 0 }},
	{"held", "Held", func(k lockRow) bool { return k.Held() }},
	{"waited", "Waited for", func(k lockRow) bool { return len(k.Queue) > 0 }},
	{"silent", "Dead or silent", func(k lockRow) bool { return k.Trouble == 2 }},
	{"long", "Long queues", func(k lockRow) bool { return words.Long(k.Queue) }},
	{"all", "All", func(lockRow) bool { return true }},
}

func (s *Server) showLocks(r *http.Request, now *listing) any {
	q := r.URL.Query()
	query, echo := searchText(r)
	l := lockList{Query: echo, Show: q.Get("show"), Sort: q.Get("sort")}
	counts := make([]int, len(lockFilters))
	var found []lockRow
	for _, k := range now.locks {
		row := rowOf(k)
		shown := matches(k, query)
		for i, f := range lockFilters {
			is := f.is(row)
			count(&counts[i], is)
			if f.value == l.Show && !is && (l.Show != "" || query == "") {
				shown = false
			}
		}
		if shown {
			found = append(found, row)
		}
	}
	sortRows(found, l.Sort)
	l.paginate(r, found)
	for i, f := range lockFilters {
		l.Filters = append(l.Filters,
			choice{f.word, urlWith(r, "show", f.value, "page", ""), l.Show == f.value})
		if f.value != "" {
			class := map[string]string{"silent": "bad", "long": "late"}[f.value]
			l.Figures = append(l.Figures, figureOf(r, f.word, f.value, counts[i], class))
		}
	}
	l.Figures[len(l.Figures)-1].Word = "All names"
	card := func(word, href string, n int) {
		f := figureOf(r, word, "", n, "bad")
		f.Href, f.On = href, false
		l.Figures = slices.Insert(l.Figures, len(l.Figures)-1, f)
	}
	malformed := len(now.bad)
	contentOf(now.loops, func(loops loopSummary) any {
		card("Failing loops", "/loops?show=failed", loops.failing)
		malformed += loops.malformed
		return nil
	})
	contentOf(now.dead, func(dead int64) any {
		card("Dead rows", "/queues", int(dead))
		return nil
	})
	if malformed > 0 {
		href := "#malformed"
		if len(now.bad) == 0 {
			href = "/loops?show=malformed"
		}
		card("Malformed", href, malformed)
	}
	if l.Found == 0 {
		l.Empty = "No lock is held or waited for."
		if query != "" || l.Show != "" {
			l.Empty = "No lock matches."
		}
	}
	return l
}

func rowOf(k *lock) lockRow {
	row := lockRow{lock: k, First: k.Holders[0], Others: len(k.Holders) - 1,
		Trouble: words.Trouble(k.Holders, k.Queue)}
	if at := slices.IndexFunc(k.Holders, words.Suspect); k.Held() && at > 0 {
		row.First = k.Holders[at]
	}
	return row
}

func (l *lockList) paginate(r *http.Request, found []lockRow) {
	l.Found = len(found)
	per := perPage
	if n, err := strconv.Atoi(r.URL.Query().Get("per")); err == nil && n > 0 {
		per = min(n, maxPage)
	}
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	page = max(0, min(page, (l.Found-1)/per))
	l.First = page * per
	l.Rows = found[min(l.First, len(found)):min(l.First+per, len(found))]
	if page > 0 {
		l.Prev = urlWith(r, "page", strconv.Itoa(page-1))
	}
	if l.First+per < l.Found {
		l.Next = urlWith(r, "page", strconv.Itoa(page+1))
	}
	for _, c := range []struct{ value, word string }{{"", "Trouble"}, {"name", "Name"},
		{"held", "Held for"}, {"ping", "Ping"}, {"queue", "Queue"}} {
		l.Sorts = append(l.Sorts, choice{c.word, urlWith(r, "sort", c.value, "page", ""), l.Sort == c.value})
	}
}

// searchText returns the search text of the request, cut to maxQuery runes. The second result
// contains only its printable characters.
func searchText(r *http.Request) (q, shown string) {
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

// matches reports whether the name of a lock, or the process or reason of a holder or waiter,
// contains the search text.
func matches(k *lock, q string) bool {
	if q == "" || contains(k.Name, q) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(k.Holders, k.Queue), func(i distlock.LockInfo) bool {
		return contains(i.Process, q) || contains(i.Why, q)
	})
}

func contains(s, q string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q)) }

// sortRows sorts rows that are already in the order of their names. By default, locks in trouble
// come first. Among locks in the same trouble, locks with longer queues come first.
func sortRows(rows []lockRow, by string) {
	order := map[string]func(a, b lockRow) int{
		"": func(a, b lockRow) int {
			if c := cmp.Compare(b.Trouble, a.Trouble); c != 0 || a.Trouble == 0 {
				return c
			}
			return cmp.Compare(len(b.Queue), len(a.Queue))
		},
		"held":  func(a, b lockRow) int { return cmp.Compare(heldFor(b), heldFor(a)) },
		"ping":  func(a, b lockRow) int { return cmp.Compare(b.First.PingAge, a.First.PingAge) },
		"queue": func(a, b lockRow) int { return cmp.Compare(len(b.Queue), len(a.Queue)) },
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

type lockPage struct {
	Name       string
	Lock       *lock // nil if the lock does not exist
	Holders    []holder
	Problem    string // the reason why the lock's existence is unknown
	AllowBreak bool
	Timeline   timeline
	Events     []event
	More       bool
	Source     string
	Quiet      bool // everything was read, and no events exist
}

type holder struct {
	distlock.LockInfo
	Outlook string         // the outlook in a few sentences
	Reasons []outlook.Line // the lines of the outlook
}

func holdersOf(k *lock) (all []holder) {
	name := func(process string) string { return words.Shown(words.Short(process), 200) }
	for _, h := range k.Holders {
		one := holder{LockInfo: h}
		if h.Held {
			o := outlook.Foresee(h, len(k.Holders)-1, k.Queue)
			one.Outlook, one.Reasons = o.Sentence(name), o.Lines(name)
		}
		all = append(all, one)
	}
	return all
}

// The page of a lock shows the newest maxEvents events. It also shows up to maxEvents older,
// unusual events, so that a takeover stays visible after many acquisitions.
const maxEvents = 100

func (s *Server) showLock(r *http.Request, now *listing) any {
	p := lockPage{Name: r.URL.Query().Get("name"), AllowBreak: s.cfg.AllowBreak}
	p.Lock = now.named[p.Name]
	if p.Lock == nil && (now.partial || len(now.bad) > 0) {
		p.Lock, p.Problem = s.readLock(r.Context(), p.Name)
	}
	if p.Lock != nil {
		s.palette.ofLock(p.Lock)
		p.Holders = holdersOf(p.Lock)
	}
	events, source, whole := s.events(r.Context(), p.Name)
	p.Source, p.Quiet = source, whole && len(events) == 0
	few := &listing{}
	if p.Lock != nil {
		few.locks = []*lock{p.Lock}
	}
	p.Timeline = s.timeline(r, now, holdings(events, few, p.Name), true)
	slices.Reverse(events)
	for i, e := range events {
		unusual := e.Class() == "bad" || e.Class() == "late"
		if i >= maxEvents && (!unusual || len(p.Events) >= 2*maxEvents) {
			p.More = true
			continue
		}
		p.Events = append(p.Events, e)
	}
	return p
}

// readLock reads a single lock that the listing omits or could not parse.
func (s *Server) readLock(ctx context.Context, name string) (*lock, string) {
	holders, queue, err := s.cfg.Inspector.Holder(ctx, name)
	switch {
	case err != nil:
		return nil, s.problem(err)
	case len(holders) == 0:
		return nil, ""
	}
	return &lock{name, holders, queue}, ""
}
