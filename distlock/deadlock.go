package distlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// deadlockAfter is how long a waiter waits before it looks for a circle; PostgreSQL's
// deadlock_timeout is the same.
const deadlockAfter = time.Second

// searchDue is the monotonic time at which a waiter looks for a deadlock: a second after it came,
// then after pauses that double up to limit. Who holds nothing is in no circle. The caller holds mu.
func (w *waiter) searchDue(limit time.Duration) time.Duration {
	switch {
	case len(w.a.grant.Holds) == 0:
		return w.since + 1<<62
	case w.pause == 0:
		return w.since + deadlockAfter
	}
	return w.search + min(w.pause, max(limit, deadlockAfter))
}

// searchDeadlocks looks for circles through the waiters given, by one read of all lines. A waiter
// that is the youngest of its circle is told.
func (m *Manager) searchDeadlocks(ctx context.Context, ws []*waiter) {
	lines := newLines()
	var failed error
	for row, err := range m.locks.Waiting(ctx) {
		if err == nil {
			lines.add(row.Lock)
		} else {
			failed = err // of one document, or of the reading: what was read counts
		}
	}
	if failed != nil {
		m.log.Debug().Err(failed).Msg("search for deadlocks")
	}
	now := m.cfg.Clock.Now().Mono
	for _, w := range ws {
		w.mu.Lock()
		w.search, w.pause = now, max(deadlockAfter, 2*w.pause)
		w.mu.Unlock()
		if w.presumed && m.room.calls() > 1 {
			continue // others wait as well: what this call holds cannot be presumed any more
		}
		if chain := lines.circle(w.a.grant.TS); chain != nil {
			d := &DeadlockError{Name: w.a.grant.Name, Chain: chain, Presumed: w.presumed}
			select {
			case w.deadlock <- d:
			default: // told before
			}
		}
	}
}

// lines are all waiters and whom they wait for.
type lines struct {
	waiters map[bson.ObjectID]inLine
	holding map[bson.ObjectID][]bson.ObjectID // a session -> the waiters whose caller holds it
}

// inLine is one waiter of a lock.
type inLine struct {
	catalog.Party
	lock   string
	before []catalog.Party // the holders, then the waiters before it
	holds  int             // how many of them are holders
}

func newLines() *lines {
	return &lines{
		waiters: map[bson.ObjectID]inLine{}, holding: map[bson.ObjectID][]bson.ObjectID{},
	}
}

func (l *lines) add(lock catalog.Lock) {
	holders := lock.Holders()
	for i, w := range lock.Waiters {
		l.waiters[w.TS] = inLine{
			Party: w, lock: lock.Name, before: slices.Concat(holders, lock.Waiters[:i]),
			holds: len(holders),
		}
		for _, ts := range w.Holds {
			l.holding[ts] = append(l.holding[ts], w.TS)
		}
	}
}

// circle returns the circle of which the waiter is the youngest, in words; nil when there is none.
func (l *lines) circle(youngest bson.ObjectID) []string {
	me, ok := l.waiters[youngest]
	if !ok {
		return nil
	}
	return l.walk(me, me, map[bson.ObjectID]bool{})
}

// walk looks for a way from a waiter to me, by those who are older than me.
func (l *lines) walk(at, me inLine, seen map[bson.ObjectID]bool) []string {
	seen[at.TS] = true
	if chain := l.walkAll(at, me, seen); chain != nil || at.Mode != catalog.Permit {
		return chain
	}
	// A permit comes back from any of its holders: all of them must be stuck.
	var found []string
	for i := range at.holds {
		chain := l.by(at, i, me, maps.Clone(seen))
		if chain == nil {
			return nil
		}
		found = chain
	}
	return found
}

// walkAll tries those each of whom is in the way of a waiter for himself.
func (l *lines) walkAll(at, me inLine, seen map[bson.ObjectID]bool) []string {
	for i, p := range at.before {
		if i < at.holds && (at.Mode == catalog.Permit || at.Mode == catalog.Shared && p.Mode == catalog.Shared) {
			continue
		}
		if chain := l.by(at, i, me, seen); chain != nil {
			return chain
		}
	}
	return nil
}

// by looks for a way to me by one of those before a waiter: by what the caller of a holder waits
// for, or by what a waiter waits for itself.
func (l *lines) by(at inLine, i int, me inLine, seen map[bson.ObjectID]bool) []string {
	p := at.before[i]
	next := l.holding[p.TS]
	if i >= at.holds {
		next = []bson.ObjectID{p.TS}
	}
	for _, ts := range next {
		if ts == me.TS {
			return []string{at.words(p, i < at.holds)}
		}
		w := l.waiters[ts]
		if seen[ts] || older(me.Party, w.Party) {
			continue
		}
		if rest := l.walk(w, me, seen); rest != nil {
			return append([]string{at.words(p, i < at.holds)}, rest...)
		}
	}
	return nil
}

// older reports whether a came before b.
func older(a, b catalog.Party) bool {
	if !a.Since.Equal(b.Since) {
		return a.Since.Before(b.Since)
	}
	return compareIDs(a.TS, b.TS) < 0
}

// words say what a waiter waits for.
func (w inLine) words(p catalog.Party, holds bool) string {
	does := "waits before it"
	if holds {
		does = "holds it"
	}
	return fmt.Sprintf("%s waits for %s, where %s %s", named(w.Party), quoted(w.lock), named(p), does)
}

func named(p catalog.Party) string {
	text := catalog.Printable(p.Who, 200)
	if text == "" {
		text = catalog.Printable(p.Process, 200)
	}
	if p.Why != "" {
		text += " (" + quoted(p.Why) + ")"
	}
	return text
}
