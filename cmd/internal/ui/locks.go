package ui

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/outlook"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

// perPage is the number of locks on a page.
const perPage = 50

type lockList struct {
	Query, Show, Sort string
	Figures           []figure
	Sorts             []choice
	Rows              []*census.Lock
	pager
}

var lockFilters = []filter[*census.Lock]{
	{"", "In use", "", func(k *census.Lock) bool { return k.Held() || len(k.Queue) > 0 }},
	{"all", "All names", "", func(*census.Lock) bool { return true }},
	{"held", "Held", "", (*census.Lock).Held},
	{"waited", "Waited for", "", func(k *census.Lock) bool { return len(k.Queue) > 0 }},
	{"silent", "Dead or silent", "bad", func(k *census.Lock) bool { return k.Trouble() == 2 }},
	{"long", "Long queues", "late", func(k *census.Lock) bool { return words.Long(k.Queue) }},
}

func (s *Server) showLocks(r *http.Request, now *listing) any {
	q := r.URL.Query()
	l := lockList{Query: searchText(r), Show: q.Get("show"), Sort: q.Get("sort")}
	figures, found := filtered(r, now.Locks, lockFilters)
	if l.Show == "" && l.Query != "" {
		found = now.Locks
	}
	found = slices.DeleteFunc(slices.Clone(found),
		func(k *census.Lock) bool { return !matches(k, l.Query) })
	malformed, href := len(now.Malformed), "#malformed"
	if malformed == 0 {
		href = "/loops?show=malformed"
	}
	if loops := now.loops; !loops.at.IsZero() {
		malformed += howMany(loops.value, isMalformed)
		figures = append(figures, newFigure("Failing loops", "/loops?show=failed",
			howMany(loops.value, census.Loop.Failed), "bad"))
	}
	if dead := now.dead; !dead.at.IsZero() {
		figures = append(figures, newFigure("Dead rows", "/queues", int(dead.value), "bad"))
	}
	if malformed > 0 {
		figures = append(figures, newFigure("Malformed", href, malformed, "bad"))
	}
	l.Figures = figures
	for i, o := range census.Orders {
		value := o.Name
		if i == 0 { // the default
			value = ""
		}
		if value == l.Sort {
			o.Sort(found)
		}
		l.Sorts = append(l.Sorts, choice{Word: o.Word, Href: urlWith(r, "sort", value),
			On: l.Sort == value})
	}
	l.pager = newPager(r, len(found), perPage)
	l.Rows = found[l.First:l.Last]
	return l
}

// searchText returns the printable characters of the request's search text.
func searchText(r *http.Request) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, r.URL.Query().Get("q"))
}

// matches reports whether the name of a lock, or the process or reason of a holder or waiter,
// contains the search text.
func matches(k *census.Lock, q string) bool {
	if q == "" || contains(k.Name, q) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(k.Holders, k.Queue), func(i distlock.LockInfo) bool {
		return contains(i.Process, q) || contains(i.Why, q)
	})
}

func contains(s, q string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q)) }

type lockPage struct {
	Name       string
	Lock       *census.Lock // nil if the lock does not exist
	Holders    []holder
	Problem    string // the reason why the lock's existence is unknown
	AllowBreak bool
	Timeline   timeline
	Events     []history.Entry // newest first
	More       bool
}

type holder struct {
	distlock.LockInfo
	Outlook []outlook.Line
}

// The page of a lock shows the newest maxEvents events.
const maxEvents = 100

func (s *Server) showLock(r *http.Request, now *listing) any {
	p := lockPage{Name: r.URL.Query().Get("name"), AllowBreak: s.cfg.AllowBreak}
	p.Lock = now.Named[p.Name]
	if p.Lock == nil && (now.Partial || len(now.Malformed) > 0) {
		p.Lock, p.Problem = s.readLock(r.Context(), p.Name)
	}
	var present []*census.Lock
	if p.Lock != nil {
		present = []*census.Lock{p.Lock}
		name := func(process string) string { return words.Shown(words.Short(process), 200) }
		for _, h := range p.Lock.Holders {
			one := holder{LockInfo: h}
			if h.Held {
				one.Outlook = outlook.Foresee(h, len(p.Lock.Holders)-1, p.Lock.Queue).Lines(name)
			}
			p.Holders = append(p.Holders, one)
		}
	}
	read := s.past(r.Context(), p.Name)
	p.Timeline = newTimeline(r, now.Now, read, present, true)
	p.Events = read.value.entries[:min(maxEvents, len(read.value.entries))]
	p.More = len(read.value.entries) > maxEvents
	return p
}

// readLock reads a single lock that the listing omits or could not parse.
func (s *Server) readLock(ctx context.Context, name string) (*census.Lock, string) {
	holders, queue, err := s.cfg.Inspector.Holder(ctx, name)
	switch {
	case err != nil:
		return nil, s.problem(err)
	case len(holders) == 0:
		return nil, ""
	}
	return &census.Lock{Name: name, Holders: holders, Queue: queue}, ""
}
