package ui

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock/history"
)

// Bounds of the stored history to read, and the lifetime of the result.
const (
	keepPast    = 3 * time.Second
	maxPast     = 2_000 // the newest entries of all locks
	maxPastOne  = 500   // entries of one lock
	maxPastKept = 64    // histories that are kept
)

type past struct {
	events []event // oldest first
	cut    bool    // the history has more
}

// pasts caches the histories that pages show.
type pasts struct {
	s  *Server
	mu sync.Mutex // guards the map by
	by map[string]*cell[past]
}

// of returns the stored history of a lock, or of all locks if the name is empty. All viewers share
// the result.
func (p *pasts) of(ctx context.Context, name string) reading[past] {
	p.mu.Lock()
	c := p.by[name]
	if c == nil {
		if len(p.by) >= maxPastKept {
			clear(p.by)
		}
		c = &cell[past]{clock: p.s.clock, keep: keepPast, word: p.s.problem,
			read: func(ctx context.Context) (past, error) {
				return p.s.readPast(ctx, name)
			}}
		p.by[name] = c
	}
	p.mu.Unlock()
	return c.get(ctx)
}

func (s *Server) readPast(ctx context.Context, name string) (past, error) {
	if s.cfg.Past == nil {
		return past{}, nil
	}
	q := history.Query{Name: name, Limit: maxPast}
	if name != "" {
		q.Limit = maxPastOne
	}
	entries, malformed, err := s.cfg.Past(ctx, q) // malformed: by an operator or a later version
	found := past{cut: len(entries)+len(malformed) >= q.Limit}
	for _, e := range slices.Backward(entries) {
		found.events = append(found.events, event{e})
	}
	return found, err
}

// events returns the events of a lock, or of all locks if the name is empty, oldest first. source
// describes where they come from: the stored history, and observed changes that it does not
// contain. whole is false if the stored history could not be read.
func (s *Server) events(ctx context.Context, name string) (_ []event, source string, whole bool) {
	seen, since := s.poller.record.of(name)
	read := s.pasts.of(ctx, name)
	written := read.value
	switch {
	case read.problem != "" && len(written.events) == 0:
		return seen, "The written history cannot be read (" + read.problem + "). " +
			seenSince(since), false
	case len(written.events) == 0:
		return seen, "Nothing is written in the history. " + seenSince(since), true
	}
	type key struct {
		holdingKey
		what string
	}
	known := map[key]bool{}
	for _, e := range written.events {
		known[key{e.holding(), e.what()}] = true
		known[key{e.holding(), e.Kind}] = true
	}
	all := slices.Clone(written.events)
	for _, e := range seen {
		what := e.what()
		if e.Kind == words.Broken {
			what = words.Broken // even if the holder recorded a loss of the lock
		}
		if !known[key{e.holding(), what}] {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At) })
	source = "From the written history, and what this page saw."
	if written.cut {
		source = fmt.Sprintf("The newest %d entries of the written history, since %s, and what "+
			"this page saw.", len(written.events), words.Instant(written.events[0].At))
	}
	if read.problem != "" {
		source = "The written history cannot be read (" + read.problem + "); it is of " +
			words.Instant(read.at) + ". " + seenSince(since)
	}
	return all, source, read.problem == ""
}

// seenSince describes the period that the rounds cover.
func seenSince(since time.Time) string {
	if since.IsZero() {
		return "This page has seen nothing so far."
	}
	return "Seen by this page since " + words.Instant(since) +
		", while somebody looked; what began and ended between two looks is not in it."
}
