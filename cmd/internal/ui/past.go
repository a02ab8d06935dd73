package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

// Limits on reads of the history, and the time for which a history is cached.
const (
	keepHistory    = 3 * time.Second
	maxHistory     = 2_000 // the newest entries of all locks
	maxLockHistory = 500   // entries of one lock
	maxHistories   = 64    // cached at the same time
)

type past struct {
	entries []history.Entry // newest first
	cut     bool            // the history has more
}

// past returns the history of a lock. An empty name selects all locks.
func (s *Server) past(ctx context.Context, name string) reading[past] {
	q := history.Query{Name: name, Limit: maxHistory}
	if name != "" {
		q.Limit = maxLockHistory
	}
	s.mu.Lock()
	kept := s.histories[name]
	if kept == nil {
		if len(s.histories) >= maxHistories {
			clear(s.histories) // a page reads its history again
		}
		kept = &cell[past]{keep: keepHistory}
		s.histories[name] = kept
	}
	s.mu.Unlock()
	return kept.get(ctx, s, func(ctx context.Context) (past, error) {
		// Malformed entries are not shown, because an operator or a later version wrote them.
		entries, malformed, err := s.cfg.Past(ctx, q)
		return past{entries, len(entries)+len(malformed) >= q.Limit}, err
	})
}

// note states which part of the history the page shows, unless it shows all of it.
func (p past) note() any {
	switch {
	case len(p.entries) == 0:
		return "No history is recorded: programs record it with a history.Log as Config.Observer."
	case p.cut:
		return fmt.Sprintf("The newest %d entries of the history, since %s.", len(p.entries),
			words.Instant(p.entries[len(p.entries)-1].At))
	}
	return ""
}

// sentence describes an event in one sentence.
func sentence(e history.Entry) string {
	return words.Sentence(e, func(process string) string {
		return words.Middle(words.Shown(words.Short(process), 2_000), 80)
	})
}

// classOf returns the CSS class of a kind of events.
func classOf(kind string) string {
	switch kind {
	case words.TakenOver:
		return "late"
	case words.Lost, words.Broken, words.Dropped, words.Evicted:
		return "bad"
	case words.Acquired, words.Granted:
		return "line"
	}
	return ""
}

// A holding is one period in which a session held a lock.
type holding struct {
	lock, process, why string
	fence              int64
	from, to           time.Time // to is zero while the lock is held
	begun, ended       string    // the event kinds of its beginning and end; empty when unknown
	trouble, waiters   int       // of a present holder; see [words.Trouble]
}

func (h *holding) over() bool { return !h.to.IsZero() }

// unknownEnd is the displayed duration of a holding with an unknown end.
const unknownEnd = 100 * time.Millisecond

// holdings computes the holdings from the history and from the present holders of the given locks.
func holdings(p past, present []*census.Lock) []*holding {
	type key struct {
		lock    string
		session bson.ObjectID
	}
	known := map[key]*holding{}
	var all []*holding
	get := func(lock string, session bson.ObjectID, process string, fence int64) *holding {
		h := known[key{lock, session}]
		if h == nil {
			h = &holding{lock: lock, process: process, fence: fence}
			known[key{lock, session}] = h
			all = append(all, h)
		}
		return h
	}
	for _, e := range slices.Backward(p.entries) {
		switch e.Kind {
		case words.Acquired, words.Granted, words.TakenOver:
			h := get(e.Name, e.Session, e.Process, e.Fence)
			h.from, h.begun, h.why = e.At, e.Kind, e.Why
		case words.Released, words.ReleasedLate, words.Lost, words.Dropped, words.Broken, words.Evicted:
			if e.Fence == 0 && known[key{e.Name, e.Session}] == nil {
				continue // the session only waited
			}
			h := get(e.Name, e.Session, cmp.Or(e.Previous, e.Process), e.Fence)
			if h.over() {
				continue // lost, and then released
			}
			h.to, h.ended = e.At, e.Kind
			if h.from.IsZero() {
				h.from = e.At.Add(-words.Span(e.HeldMS))
			}
		}
	}
	for _, h := range all {
		if !h.over() {
			h.to, h.ended = h.from.Add(unknownEnd), "its end is not known"
		}
	}
	for _, k := range present {
		for _, i := range k.Holders {
			if i.Held && !i.Since.IsZero() {
				h := get(k.Name, i.Session, i.Process, i.Fence)
				h.from, h.to, h.why, h.ended = i.Since, time.Time{}, i.Why, ""
				h.trouble, h.waiters = words.Trouble([]distlock.LockInfo{i}, k.Queue), len(k.Queue)
			}
		}
	}
	return all
}
