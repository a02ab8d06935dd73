package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
)

const maxRecord = 5_000

// If a holding ended between two rounds, its recorded end is the time of the second round. If the
// rounds are more than maxGap apart, its recorded end is the time of the first round.
const maxGap = 15 * time.Second

// An event is a change of a lock, from the stored history or from the difference between two
// rounds. Its time is the time of the server, or of this machine if the time of the server is
// unknown. For a break, Process is the process that broke the lock, or empty if unknown.
type event history.Entry

const (
	begins = "begins"
	ends   = "ends"
)

// The result states whether the event begins or ends a holding. It is empty if the event does
// neither.
func (e event) what() string {
	switch e.Kind {
	case words.Acquired, words.Granted, words.TakenOver:
		return begins
	case words.Released, words.ReleasedLate, words.Lost, words.Dropped, words.Broken, words.Evicted:
		return ends
	}
	return ""
}

// Sentence describes the event in one sentence.
func (e event) Sentence() string {
	return words.Sentence(history.Entry(e),
		func(process string) string { return words.Shown(words.Short(process), 80) })
}

// Key identifies the event on a page.
func (e event) Key() string { return fmt.Sprint(e.At.UnixNano(), e.Kind, e.Fence, e.Process) }

// Class returns the CSS class of the event.
func (e event) Class() string {
	switch e.Kind {
	case words.TakenOver:
		return "late"
	case words.Lost, words.Broken, words.Dropped, words.Evicted:
		return "bad"
	case words.Acquired, words.Granted:
		return "line"
	}
	return ""
}

// A holdingKey identifies a holding of a lock by its session. The fence cannot identify a holding,
// because it can change during the first holding of a lock, and the event of a late release may
// have no fence.
type holdingKey struct {
	lock    string
	session bson.ObjectID
	process string // with the fence, replaces a missing session
	fence   int64
}

func keyOf(lock string, session bson.ObjectID, process string, fence int64) holdingKey {
	if session.IsZero() {
		return holdingKey{lock: lock, process: process, fence: fence}
	}
	return holdingKey{lock: lock, session: session}
}

func (e event) holding() holdingKey {
	holder := e.Process
	if e.what() == ends {
		holder = cmp.Or(e.Previous, holder)
	}
	return keyOf(e.Name, e.Session, holder, e.Fence)
}

// A record stores the changes of locks between rounds. It misses holdings that start and end
// between two rounds.
type record struct {
	mu     sync.Mutex // guards the rest
	since  time.Time
	last   time.Time        // the time of the latest round
	locks  map[string]*lock // of the latest round
	events []event          // oldest first
}

// holdersBySession returns the holders of a lock. It returns nil for a free lock, and for nil.
func (l *lock) holdersBySession() map[bson.ObjectID]distlock.LockInfo {
	if l == nil || !l.Held() {
		return nil
	}
	holders := map[bson.ObjectID]distlock.LockInfo{}
	for _, h := range l.Holders {
		holders[h.Session] = h
	}
	return holders
}

// compare records the changes since the previous round. If the listing contains no time of the
// server, the given time of this machine is used.
func (r *record) compare(l *listing, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now = cmp.Or(l.now, now)
	r.since = cmp.Or(r.since, now)
	for _, k := range l.locks {
		before, holders := r.locks[k.Name].holdersBySession(), k.holdersBySession()
		takenOver := false // the event of the takeover also begins the new holding
		for session, was := range before {
			if _, still := holders[session]; still {
				continue
			}
			e := endEvent(k, was, now)
			if now.Sub(r.last) > maxGap && e.At.Equal(now) {
				e.At, e.Cause = r.last, "no round ran when it ended; it was held at "+words.Instant(r.last)
				e.HeldMS = max(0, e.At.Sub(was.Since).Milliseconds())
			}
			takenOver = takenOver || e.Kind == words.TakenOver
			r.add(e)
		}
		for _, h := range k.Holders {
			was, had := before[h.Session]
			switch {
			case !h.Held:
			case !had && !takenOver:
				r.add(event{At: cmp.Or(h.Since, now), Name: k.Name, Kind: words.Acquired,
					Process: h.Process, Session: h.Session, Fence: h.Fence, Why: h.Why})
			case had && was.Fence != h.Fence:
				r.updateFence(k.Name, h)
			}
		}
	}
	r.locks, r.last = l.named, now
}

// endEvent returns the event for the end of a holding of lock k. The second argument is the holder
// in the previous round.
func endEvent(k *lock, was distlock.LockInfo, now time.Time) event {
	e := event{At: now, Name: k.Name, Kind: words.Released, Process: was.Process,
		Session: was.Session, Fence: was.Fence, Why: was.Why}
	next := k.Holders[0]
	switch why, forced := strings.CutPrefix(next.Why, "broken: "); {
	case !next.Held && forced:
		e.Kind, e.Process, e.Previous, e.Why = words.Broken, "", was.Process, why
	case next.Held && next.Process != was.Process && (was.Condemned || silentBy(was, next.Since)):
		e.Kind, e.Process, e.Previous, e.Session, e.Fence = words.TakenOver, next.Process, was.Process,
			next.Session, next.Fence
		e.Why, e.Evidence = next.Why, "its ping was "+was.PingAge.Round(time.Millisecond).String()+
			" old at the last round"
	}
	if next.Held && !next.Since.IsZero() && next.Since.Before(now) && next.Since.After(was.Since) {
		e.At = next.Since // the lock was handed over
	}
	if !was.Since.IsZero() {
		e.HeldMS = max(0, e.At.Sub(was.Since).Milliseconds())
	}
	return e
}

// silentBy reports whether, at the given time, a holder had not pinged for at least nine tenths of
// its takeover time. It does not require the whole time, because a contender and the page read at
// different times.
func silentBy(was distlock.LockInfo, at time.Time) bool {
	if was.Takeover == 0 || was.PingAge < was.Takeover/2 || was.Age < 0 || at.IsZero() {
		return false // the holder may have pinged since the round
	}
	pinged := was.Since.Add(was.Age - was.PingAge)
	return at.Sub(pinged) >= was.Takeover*9/10
}

func (r *record) add(e event) {
	r.events = append(r.events, e)
	if len(r.events) > maxRecord {
		r.events = slices.Clone(r.events[len(r.events)-maxRecord*9/10:])
	}
}

// updateFence corrects the recorded fence of a holder. The fence of a new lock document is set to
// the server's clock after the acquisition, so an earlier round may have read a lower fence.
func (r *record) updateFence(lock string, h distlock.LockInfo) {
	for i := range r.events {
		if e := &r.events[i]; e.Name == lock && e.Session == h.Session {
			e.Fence = h.Fence
		}
	}
}

// The results are the recorded changes of a lock, and the time when the record begins. An empty name selects all locks.
func (r *record) of(name string) ([]event, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	other := func(e event) bool { return name != "" && e.Name != name }
	return slices.DeleteFunc(slices.Clone(r.events), other), r.since
}

// Limits on reads of the stored history, and the time for which a history is cached.
const (
	keepHistory    = 3 * time.Second
	maxHistory     = 2_000 // the newest entries of all locks
	maxLockHistory = 500   // entries of one lock
)

type storedEvents struct {
	events []event // oldest first
	cut    bool    // the history has more
}

func (s *Server) readHistory(ctx context.Context, name string) (storedEvents, error) {
	q := history.Query{Name: name, Limit: maxHistory}
	if name != "" {
		q.Limit = maxLockHistory
	}
	// Malformed entries are not shown, because an operator or a later version wrote them.
	entries, malformed, err := s.cfg.Past(ctx, q)
	found := storedEvents{cut: len(entries)+len(malformed) >= q.Limit}
	for _, e := range slices.Backward(entries) {
		found.events = append(found.events, event(e))
	}
	return found, err
}

// events returns the events of a lock, the oldest first. An empty name selects all locks. The
// result merges the stored history with the recorded changes that the history lacks. The second
// result describes to an operator where the events come from. The third result is false if the
// stored history could not be read.
func (s *Server) events(ctx context.Context, name string) (_ []event, source string, whole bool) {
	observed, since := s.record.of(name)
	kept := s.histories.get(name, func() *cell[storedEvents] {
		return &cell[storedEvents]{keep: keepHistory}
	})
	read := kept.get(ctx, s, func(ctx context.Context) (storedEvents, error) {
		return s.readHistory(ctx, name)
	})
	stored := read.value
	type key struct {
		holdingKey
		what string
	}
	known := map[key]bool{}
	for _, e := range stored.events {
		known[key{e.holding(), e.what()}] = true
		known[key{e.holding(), e.Kind}] = true
	}
	all := slices.Clone(stored.events)
	for _, e := range observed {
		what := e.what()
		if e.Kind == words.Broken {
			what = words.Broken // even if the holder recorded a loss of the lock
		}
		if !known[key{e.holding(), what}] {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At) })
	switch {
	case read.problem != "" && len(stored.events) == 0:
		source = "The stored history cannot be read (" + read.problem + "). " + observedSince(since)
	case read.problem != "":
		source = "The stored history cannot be read (" + read.problem + "); it is as of " +
			words.Instant(read.at) + ". " + observedSince(since)
	case len(stored.events) == 0:
		source = "The stored history has no entries. " + observedSince(since)
	case stored.cut:
		source = fmt.Sprintf("The newest %d entries of the stored history, since %s, and the "+
			"observations of this page.", len(stored.events), words.Instant(stored.events[0].At))
	default:
		source = "From the stored history and the observations of this page."
	}
	return all, source, read.problem == ""
}

func observedSince(since time.Time) string {
	if since.IsZero() {
		return "This page has observed nothing yet."
	}
	return "Observed by this page since " + words.Instant(since) +
		", while a browser had it open. Holdings that began and ended between two reads are missing."
}
