package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"mongodlm/cmd/internal/outlook"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

type lockPage struct {
	Name       string
	Lock       *lock // nil if the lock does not exist
	Holders    []holder
	Problem    string // the reason why the lock's existence is unknown
	AllowBreak bool
	Timeline   timeline
	Events     []eventRow
	More       bool
	Source     string
	Quiet      bool // everything was read, and no events exist
}

type eventRow struct {
	event
	Key, When, Class string
}

func eventRowOf(e event) eventRow {
	row := eventRow{event: e, When: e.At.UTC().Format("2006-01-02 15:04:05.0")}
	row.Key = fmt.Sprint(e.At.UnixNano(), e.Kind, e.Fence, e.Process)
	switch e.Kind {
	case words.TakenOver:
		row.Class = "late"
	case words.Lost, words.Broken, words.Dropped, words.Evicted:
		row.Class = "bad"
	case words.Acquired, words.Granted:
		row.Class = "line"
	}
	return row
}

type holder struct {
	distlock.LockInfo
	Outlook string         // the outlook in one sentence
	Reasons []outlook.Line // the lines of the outlook
}

func holdersOf(k *lock) (all []holder) {
	name := func(process string) string { return words.Shown(words.Short(process), 200) }
	for _, h := range k.Holders {
		one := holder{LockInfo: h}
		if h.Held {
			o := outlook.Foresee(h, len(k.Holders)-1, k.Line)
			one.Outlook, one.Reasons = o.Sentence(name), o.Lines(name)
		}
		all = append(all, one)
	}
	return all
}

// maxEvents is the number of newest events on the page of a lock. As many older events are shown if
// they are unusual, so a takeover stays visible after a hundred acquisitions.
const maxEvents = 100

func (s *Server) showLock(r *http.Request, now *listing) any {
	p := lockPage{Name: r.URL.Query().Get("name"), AllowBreak: s.cfg.AllowBreak}
	p.Lock = now.named[p.Name]
	if p.Lock == nil && (now.partial || len(now.bad) > 0) {
		p.Lock, p.Problem = s.one(r.Context(), p.Name)
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
		row := eventRowOf(e)
		unusual := row.Class == "bad" || row.Class == "late"
		if i >= maxEvents && (!unusual || len(p.Events) >= 2*maxEvents) {
			p.More = true
			continue
		}
		p.Events = append(p.Events, row)
	}
	return p
}

// one reads a single lock, which a listing has omitted or could not parse.
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
