package pinger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"mongodlm/catalog"
)

// releaseParallel bounds how many sessions are taken out of their locks at a time in the
// background, so that a crowd of waiters that is cancelled at once does not outrun the server.
const releaseParallel = 16

// releaseQueue has the sessions that are taken out of their locks in the background: those of callers
// that have gone, and those whose release failed or whose acquisition has an unknown outcome. Each
// is tried once at once. What fails is left to the reaper, which tries it again for as long as the
// store shows the session. mongos has had a list of late releases since 2.0; its entries could be
// forgotten at a shutdown.
type releaseQueue struct {
	mu      sync.Mutex // guards the fields below
	entries map[catalog.Session]*release
	added   int               // entries so far: the number of the next one
	due     []catalog.Session // to be tried now: each an entry that nobody is at, once
	workers int
	busy    int           // workers that are at an entry
	drained chan struct{} // closed when the last worker has gone; nil before Close
	closed  bool
}

// A release is one entry of the list.
type release struct {
	no    int   // later ones have higher numbers
	term  *Term // to which the session belongs; nil before the first
	ghost bool  // a ping of term has found it, and nobody knows it
	late  bool
	maybe bool // it may never have been in its lock
	busy  bool
	err   error // of the last try
}

// add enters a session that is not on the list yet.
func (q *releaseQueue) add(s catalog.Session, r release) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if old := q.entries[s]; old != nil {
		old.late, old.ghost = old.late || r.late, old.ghost && r.ghost
		return
	}
	if q.entries == nil {
		q.entries = map[catalog.Session]*release{}
	}
	r.no = q.added
	q.entries[s] = &r
	q.added++
	q.due = append(q.due, s)
}

func (q *releaseQueue) has(s catalog.Session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entries[s] != nil
}

func (q *releaseQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

// list returns the entries, oldest first, and the error of the first one that has one.
func (q *releaseQueue) list() (sessions []catalog.Session, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sessions = q.oldestFirst()
	for _, s := range sessions {
		if err == nil {
			err = q.entries[s].err
		}
	}
	return sessions, err
}

// oldestFirst returns the entries. The caller holds mu.
func (q *releaseQueue) oldestFirst() []catalog.Session {
	return slices.SortedFunc(maps.Keys(q.entries), func(a, b catalog.Session) int {
		return cmp.Compare(q.entries[a].no, q.entries[b].no)
	})
}

// again makes all entries due that nobody is at.
func (q *releaseQueue) again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	busy := func(s catalog.Session) bool { return q.entries[s].busy }
	q.due = slices.DeleteFunc(q.oldestFirst(), busy)
}

// hire reports whether a further worker is needed, and counts it. There is none after Close.
func (q *releaseQueue) hire() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.workers == releaseParallel || q.workers-q.busy >= len(q.due) {
		return false
	}
	q.workers++
	return true
}

// take gives a worker an entry that is due; ok is false when there is none, and the worker has
// gone.
func (q *releaseQueue) take() (s catalog.Session, r release, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == 0 {
		q.workers--
		q.gone()
		return s, r, false
	}
	s = q.due[0]
	q.due = q.due[1:]
	q.entries[s].busy = true
	q.busy++
	return s, *q.entries[s], true
}

// forget takes an entry off the list that a worker is at.
func (q *releaseQueue) forget(s catalog.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	delete(q.entries, s)
}

// idle returns the sessions that are not tried now, oldest first.
func (q *releaseQueue) idle() (sessions []catalog.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := make(map[catalog.Session]bool, len(q.due))
	for _, s := range q.due {
		due[s] = true
	}
	for _, s := range q.oldestFirst() {
		if !q.entries[s].busy && !due[s] {
			sessions = append(sessions, s)
		}
	}
	return sessions
}

// retry makes a session due that a worker has tried.
func (q *releaseQueue) retry(s catalog.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.entries[s]; r != nil && !r.busy && !slices.Contains(q.due, s) {
		q.due = append(q.due, s)
	}
}

// drop removes a session that is in its lock no more, and reports whether it was one of a late
// release.
func (q *releaseQueue) drop(s catalog.Session) (late bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.entries[s]
	if r == nil || r.busy || !r.maybe || slices.Contains(q.due, s) {
		return false
	}
	delete(q.entries, s)
	return r.late
}

// done notes what became of a try, and reports whether it was a late release that is done. Where
// there is no server the others are not tried now: they would find none either.
func (q *releaseQueue) done(s catalog.Session, err error) (late bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	r := q.entries[s]
	if err == nil {
		delete(q.entries, s)
		return r.late
	}
	r.busy, r.late, r.err = false, true, err
	if errors.Is(err, catalog.ErrUnavailable) {
		q.due = nil
	}
	return false
}

// drain returns a channel that is closed when the workers have gone. None is hired after that.
func (q *releaseQueue) drain() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drained = make(chan struct{})
	q.gone()
	return q.drained
}

// gone ends the queue with its last worker, once that is waited for. The caller holds mu.
func (q *releaseQueue) gone() {
	if q.workers == 0 && q.drained != nil && !q.closed {
		q.closed = true
		close(q.drained)
	}
}

// ReleaseSoon takes a session whose caller has gone out of its lock, holder or waiter, in the
// background: by its ts, once at once, then with each read of the reaper that shows it, and at
// Close. A few at a time. under is the term to which the session belongs, without it the last one; see
// [LockPinger.Releasing] for what it may do. No I/O here; never blocks.
func (p *LockPinger) ReleaseSoon(s catalog.Session, under ...*Term) {
	p.enlist(s, release{}, under)
}

// ReleaseLater is ReleaseSoon of a session whose release failed, or whose acquisition has an
// unknown outcome: it is counted and logged as a late release.
func (p *LockPinger) ReleaseLater(s catalog.Session, under ...*Term) {
	p.enlist(s, release{late: true}, under)
}

// ReleaseDoubtful is ReleaseLater of a session whose acquisition was not answered in time. It is
// tried again only while the store shows it.
func (p *LockPinger) ReleaseDoubtful(s catalog.Session, under ...*Term) {
	p.enlist(s, release{late: true, maybe: true}, under)
}

func (p *LockPinger) enlist(s catalog.Session, r release, under []*Term) {
	r.term = append(under, p.Last())[0]
	p.queue.add(s, r)
	p.work()
}

// releaseAgain tries every entry of the list now.
func (p *LockPinger) releaseAgain() {
	p.queue.again()
	p.work()
}

// work starts workers for what is due.
func (p *LockPinger) work() {
	for p.queue.hire() {
		go func() { // ends when nothing is due; waited for by Close
			for s, r, ok := p.queue.take(); ok; s, r, ok = p.queue.take() {
				p.guarded("release", func() error { p.release(s, r); return nil })
			}
		}()
	}
}

// release tries one entry of the list once, or forgets it: what is the twin's by now, and a ghost
// that a term has found which is over. A ghost that is one still the next ping finds again.
func (p *LockPinger) release(s catalog.Session, r release) {
	ctx, cancel := context.WithTimeout(p.pinging, p.cfg.Limit)
	defer cancel()
	err, forget := errors.New("the release panicked"), false
	defer func() {
		if forget {
			p.queue.forget(s)
			return
		}
		held := err == nil
		if errors.Is(err, catalog.ErrNoMatch) { // it is out already
			err = nil
		}
		if p.queue.done(s, err) {
			p.releasedLate(s, held)
		}
	}()
	ctx, done, refused := p.Releasing(ctx, r.term)
	if refused == nil {
		defer done()
	}
	forget = r.ghost && r.term.Err() != nil || errors.Is(refused, catalog.ErrTwin)
	if forget || refused != nil {
		err = refused
		return
	}
	err = p.cfg.Owner.ReleaseInStore(ctx, s)
}

// again follows a read of the reaper for a session with a failed try: it is tried again, unless it may
// never have been in its lock and the store does not show it.
func (p *LockPinger) again(s catalog.Session, stored bool) {
	if !stored && p.queue.drop(s) {
		p.releasedLate(s, false)
	}
	p.queue.retry(s)
}

func (p *LockPinger) releasedLate(s catalog.Session, held bool) {
	p.stats.late.Add(1)
	p.log.Info().Str("lock", catalog.Printable(s.Name, 200)).Stringer("ts", s.TS).
		Bool("was_held", held).Msg("released late")
	if p.cfg.Told != nil {
		p.cfg.Told.ReleasedLate(s)
	}
}

// left says which locks may still be held, nil when none.
func (p *LockPinger) left() error {
	sessions, err := p.queue.list()
	if len(sessions) == 0 {
		return nil
	}
	const shown = 10
	var names []string
	for _, s := range sessions[:min(shown, len(sessions))] {
		names = append(names, `"`+catalog.Printable(s.Name, 200)+`"`)
	}
	if more := len(sessions) - shown; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("pinger: %d locks could not be released and may stay held until they are "+
		"taken over: %s: %w", len(sessions), strings.Join(names, ", "), err)
}
