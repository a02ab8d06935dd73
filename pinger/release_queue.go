package pinger

import (
	"context"
	"errors"
	"slices"
	"sync"

	"mongodlm/catalog"
)

// releaseQueue is the late-release list: sessions whose release failed, or whose acquisition has an
// unknown outcome. mongos has had one since 2.0; its entries could be forgotten at a shutdown.
type releaseQueue struct {
	mu     sync.Mutex // guards order and failed
	order  []catalog.Session
	failed map[catalog.Session]error // one entry each; the value is the error of the last try
}

type lateRelease struct {
	catalog.Session
	err error
}

func (q *releaseQueue) add(s catalog.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, there := q.failed[s]; there {
		return
	}
	if q.failed == nil {
		q.failed = map[catalog.Session]error{}
	}
	q.failed[s] = nil
	q.order = append(q.order, s)
}

func (q *releaseQueue) has(s catalog.Session) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, there := q.failed[s]
	return there
}

// list returns the entries, oldest first.
func (q *releaseQueue) list() []lateRelease {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order = slices.DeleteFunc(q.order, func(s catalog.Session) bool {
		_, there := q.failed[s]
		return !there
	})
	entries := make([]lateRelease, 0, len(q.order))
	for _, s := range q.order {
		entries = append(entries, lateRelease{s, q.failed[s]})
	}
	return entries
}

// done removes s, or notes the error of the last try.
func (q *releaseQueue) done(s catalog.Session, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil {
		delete(q.failed, s)
	} else {
		q.failed[s] = err
	}
}

// ReleaseLater hands a session to the late-release list. It is released by its ts, at once if the
// pinger runs and the server answers, else after every acknowledged ping and at Close, until the
// server has said that it was done or that the session holds nothing. No I/O here; never blocks.
func (p *LockPinger) ReleaseLater(s catalog.Session) {
	p.queue.add(s)
	select {
	case p.kick <- struct{}{}:
	default: // a run is due already
	}
}

// Late returns the sessions on the late-release list.
func (p *LockPinger) Late() []catalog.Session {
	var sessions []catalog.Session
	for _, e := range p.queue.list() {
		sessions = append(sessions, e.Session)
	}
	return sessions
}

// releaseLate tries every entry of the late-release list once. It stops at the first one that finds
// no server, since the others would find none either.
func (p *LockPinger) releaseLate(ctx context.Context) {
	for _, e := range p.queue.list() {
		err := p.releaseOne(ctx, e.Session)
		if err == nil || errors.Is(err, catalog.ErrNoMatch) {
			p.queue.done(e.Session, nil)
			p.stats.late.Add(1)
			p.log.Info().Str("lock", catalog.Printable(e.Name, 200)).Stringer("ts", e.TS).
				Bool("was_held", err == nil).Msg("released late")
			continue
		}
		p.queue.done(e.Session, err)
		if ctx.Err() != nil || errors.Is(err, catalog.ErrUnavailable) {
			return
		}
	}
}

func (p *LockPinger) releaseOne(ctx context.Context, s catalog.Session) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	return p.cfg.Store.Release(ctx, s)
}
