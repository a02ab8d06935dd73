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

// releaseParallel limits the concurrent releases in the background. It protects the server when
// many waiters are canceled together.
const releaseParallel = 16

// A releaseQueue holds the sessions that are removed from their locks in the background: sessions
// of abandoned calls, of failed releases, and of acquisitions with an unknown outcome. The pinger
// tries each removal immediately. After a failure the reaper repeats it. mongos 2.0 and later have
// a similar queue, which can lose entries at a shutdown.
type releaseQueue struct {
	mu      sync.Mutex // guards the fields below, except running
	entries map[catalog.Session]*release
	trying  int        // number of entries with a goroutine
	idle    *sync.Cond // signals that trying is 0
	closed  bool
	running chan struct{} // one element for each running command
}

// A release is one entry of the queue. The queue's mu guards the fields.
type release struct {
	term   *Term // term of the session; nil before the first term
	ghost  bool  // Reap found the session in term, and the process does not own it
	late   bool
	maybe  bool // the session may have left its lock, or never have been in it
	trying bool // a goroutine waits for its command or sends it
	due    bool // false if the goroutine must send no command, because the server is away
	err    error
}

// errSkipped is the result of a try that sent no command.
var errSkipped = errors.New("the server is unavailable")

// update reports whether a session that Reap has found in term t is in the queue. If the session is
// a ghost, update sets its term to t.
func (q *releaseQueue) update(s catalog.Session, t *Term) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.entries[s]
	if r != nil && r.ghost {
		r.term = t
	}
	return r != nil
}

// sessions returns all sessions of the queue in order, and the sessions without a try in progress.
func (q *releaseQueue) sessions() (all, resting []catalog.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all = slices.SortedFunc(maps.Keys(q.entries), catalog.Session.Compare)
	for _, s := range all {
		if !q.entries[s].trying {
			resting = append(resting, s)
		}
	}
	return all, resting
}

// wait waits for the releases in progress. If last is set, no release begins afterwards.
func (q *releaseQueue) wait(last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.trying > 0 {
		q.idle.Wait()
	}
	q.closed = last
}

// ReleaseSoon removes the session of an abandoned call from its lock, in the background. The
// session may hold the lock or wait for it. The first try begins immediately. After a failure, the
// pinger tries again each time the reaper has read the sessions in the store, and Close tries once
// more. At most 16 commands run at a time. The argument t is the term of the session, see
// [LockPinger.Releasing]. ReleaseSoon does no I/O and never blocks.
func (p *LockPinger) ReleaseSoon(s catalog.Session, t *Term) { p.enlist(s, release{term: t}) }

// ReleaseLater does the same as ReleaseSoon, after a failed release or an acquisition with an
// unknown outcome. The removal is counted and logged as a late release.
func (p *LockPinger) ReleaseLater(s catalog.Session, t *Term) {
	p.enlist(s, release{late: true, term: t})
}

// ReleaseDoubtful is ReleaseLater for a session whose acquisition was not answered in time. The
// lock document may not contain the session. The queue drops the session once the reaper has read
// the document without it.
func (p *LockPinger) ReleaseDoubtful(s catalog.Session, t *Term) {
	p.enlist(s, release{late: true, maybe: true, term: t})
}

func (p *LockPinger) enlist(s catalog.Session, r release) {
	p.queue.mu.Lock()
	old := p.queue.entries[s]
	if old == nil {
		p.queue.entries[s] = &r
	} else {
		old.late, old.ghost = old.late || r.late, old.ghost && r.ghost
	}
	p.queue.mu.Unlock()
	if old == nil {
		p.retry(s)
	}
}

func (p *LockPinger) releaseAgain() {
	all, _ := p.queue.sessions()
	p.retry(all...)
}

// retry starts a try for each given session that is in the queue and has no try in progress.
func (p *LockPinger) retry(sessions ...catalog.Session) {
	q := &p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range sessions {
		r := q.entries[s]
		if r == nil || r.trying || q.closed {
			continue
		}
		r.trying, r.due = true, true
		q.trying++
		go func() { // ends after one command; waited for by Close
			q.running <- struct{}{}
			defer func() { <-q.running }()
			p.protect("release", func() error { p.release(s, r); return nil })
		}()
	}
}

// release makes one try to remove a session from its lock. It sends no command if another try has
// just found the server unavailable. It sends none for a ghost whose term has ended, until Reap
// finds the ghost in a new term. It drops the session of a twin from the queue. It also drops a
// ghost of an id that was given up, because a twin may still run.
func (p *LockPinger) release(s catalog.Session, r *release) {
	err, forget := errSkipped, false
	defer func() { p.recordTry(s, r, err, forget) }()
	p.queue.mu.Lock()
	due, ghost, term := r.due, r.ghost, r.term
	p.queue.mu.Unlock()
	if !due {
		return
	}
	err = errors.New("the release panicked")
	ctx, cancel := context.WithTimeout(p.pinging, p.cfg.Limit)
	defer cancel()
	ctx, done, refused := p.Releasing(ctx, term)
	if refused == nil {
		defer done()
	}
	forget = errors.Is(refused, catalog.ErrTwin) || ghost && term.id.used.Err() != nil
	if refused != nil || ghost && term.Err() != nil {
		err = cmp.Or(refused, errUnproven)
		return
	}
	err = p.cfg.Owner.ReleaseInStore(ctx, s)
}

// recordTry records the result of a try. A session that is not in its lock counts as released.
func (p *LockPinger) recordTry(s catalog.Session, r *release, err error, forget bool) {
	q, late := &p.queue, false
	q.mu.Lock()
	switch {
	case forget:
		delete(q.entries, s)
	case err == nil, errors.Is(err, catalog.ErrNoMatch):
		late = r.late
		delete(q.entries, s)
	case !errors.Is(err, errSkipped):
		r.late, r.err = true, err
		for _, other := range q.entries {
			other.due = other.due && !errors.Is(err, catalog.ErrUnavailable)
		}
	}
	r.trying = false
	if q.trying--; q.trying == 0 {
		q.idle.Broadcast()
	}
	q.mu.Unlock()
	if late {
		p.releasedLate(s, err == nil)
	}
}

// checkReleases retries the given releases after a read of the reaper in term t. The argument
// stored contains the sessions that the read found, all of the process id of t. checkReleases drops
// the release of a session that the read did not find, if the session belongs to this id, and may
// have left its lock or may never have been in it.
func (p *LockPinger) checkReleases(
	sessions []catalog.Session, stored map[catalog.Session]bool, t *Term,
) {
	for _, s := range sessions {
		p.queue.mu.Lock()
		r := p.queue.entries[s]
		gone := r != nil && !r.trying && r.maybe && !stored[s] && (r.term == nil || r.term.id == t.id)
		if gone {
			delete(p.queue.entries, s)
		}
		p.queue.mu.Unlock()
		if !gone {
			p.retry(s)
		} else if r.late {
			p.releasedLate(s, false)
		}
	}
}

func (p *LockPinger) releasedLate(s catalog.Session, held bool) {
	p.stats.late.Add(1)
	p.log.Info().Str("lock", catalog.Printable(s.Name, 200)).Stringer("ts", s.TS).
		Bool("was_held", held).Msg("released late")
	if p.cfg.Told != nil {
		p.cfg.Told.ReleasedLate(s)
	}
}

// unreleased returns an error that names the locks that may still be held, or nil if the queue is
// empty.
func (p *LockPinger) unreleased() (err error) {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	const shown = 10
	n := len(p.queue.entries)
	var names []string
	for _, s := range slices.SortedFunc(maps.Keys(p.queue.entries), catalog.Session.Compare) {
		if len(names) < shown {
			names = append(names, `"`+catalog.Printable(s.Name, 200)+`"`)
		}
		if err == nil {
			err = p.queue.entries[s].err
		}
	}
	if n == 0 {
		return nil
	}
	if n > shown {
		names = append(names, fmt.Sprintf("%d more", n-shown))
	}
	return fmt.Errorf("pinger: %d locks could not be released and may stay held until they are "+
		"taken over: %s: %w", n, strings.Join(names, ", "), err)
}
