package ui

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

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
	Rows              []lockRow
	pager
}

type lockRow struct {
	*lock
	First   distlock.LockInfo // the holder in trouble, if the lock has one
	Others  int
	Trouble int // see [words.Trouble]
}

func (k lockRow) inUse() bool { return k.Held() || len(k.Queue) > 0 }

var lockFilters = []filter[lockRow]{
	{"", "In use", "", lockRow.inUse},
	{"all", "All names", "", func(lockRow) bool { return true }},
	{"held", "Held", "", lockRow.Held},
	{"waited", "Waited for", "", func(k lockRow) bool { return len(k.Queue) > 0 }},
	{"silent", "Dead or silent", "bad", func(k lockRow) bool { return k.Trouble == 2 }},
	{"long", "Long queues", "late", func(k lockRow) bool { return words.Long(k.Queue) }},
}

func byQueue(a, b lockRow) int { return cmp.Compare(len(b.Queue), len(a.Queue)) }

// lockSorts lists the sort orders. Equal rows stay in the order of their names. By default, locks
// in trouble come first. Among locks in the same trouble, locks with longer queues come first.
var lockSorts = []struct {
	value, word string
	order       func(a, b lockRow) int
}{
	{"", "Trouble", func(a, b lockRow) int {
		if c := cmp.Compare(b.Trouble, a.Trouble); c != 0 || a.Trouble == 0 {
			return c
		}
		return byQueue(a, b)
	}},
	{"name", "Name", func(_, _ lockRow) int { return 0 }},
	{"held", "Held for", func(a, b lockRow) int { return cmp.Compare(b.heldFor(), a.heldFor()) }},
	{"ping", "Ping", func(a, b lockRow) int { return cmp.Compare(b.First.PingAge, a.First.PingAge) }},
	{"queue", "Queue", byQueue},
}

func (s *Server) showLocks(r *http.Request, now *listing) any {
	q := r.URL.Query()
	l := lockList{Query: searchText(r), Show: q.Get("show"), Sort: q.Get("sort")}
	var all []lockRow
	for _, k := range now.locks {
		all = append(all, rowOf(k))
	}
	figures, found := filtered(r, all, lockFilters)
	if l.Show == "" && l.Query != "" {
		found = all
	}
	found = slices.DeleteFunc(found, func(k lockRow) bool { return !matches(k.lock, l.Query) })
	malformed, href := len(now.bad), "#malformed"
	if malformed == 0 {
		href = "/loops?show=malformed"
	}
	if loops := now.loops; !loops.at.IsZero() {
		malformed += howMany(loops.value, loopRow.malformed)
		figures = append(figures, newFigure("Failing loops", "/loops?show=failed",
			howMany(loops.value, loopRow.Failed), "bad"))
	}
	if dead := now.dead; !dead.at.IsZero() {
		figures = append(figures, newFigure("Dead rows", "/queues", int(dead.value), "bad"))
	}
	if malformed > 0 {
		figures = append(figures, newFigure("Malformed", href, malformed, "bad"))
	}
	l.Figures = figures
	for _, c := range lockSorts {
		if c.value == l.Sort {
			slices.SortStableFunc(found, c.order)
		}
		l.Sorts = append(l.Sorts, choice{Word: c.word, Href: urlWith(r, "sort", c.value),
			On: l.Sort == c.value})
	}
	l.pager = newPager(r, len(found), perPage)
	l.Rows = found[l.First:l.Last]
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
func matches(k *lock, q string) bool {
	if q == "" || contains(k.Name, q) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(k.Holders, k.Queue), func(i distlock.LockInfo) bool {
		return contains(i.Process, q) || contains(i.Why, q)
	})
}

func contains(s, q string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q)) }

func (k lockRow) heldFor() time.Duration {
	if !k.Held() {
		return -1
	}
	return k.First.Age
}

type lockPage struct {
	Name       string
	Lock       *lock // nil if the lock does not exist
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
	p.Lock = now.named[p.Name]
	if p.Lock == nil && (now.partial || len(now.bad) > 0) {
		p.Lock, p.Problem = s.readLock(r.Context(), p.Name)
	}
	var present []*lock
	if p.Lock != nil {
		present = []*lock{p.Lock}
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
	p.Timeline = newTimeline(r, now.now, read, present, true)
	p.Events = read.value.entries[:min(maxEvents, len(read.value.entries))]
	p.More = len(read.value.entries) > maxEvents
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
