package pinger

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"mongodlm/catalog"
)

// A chore is the work that follows an acknowledged ping of a term.
type chore struct {
	term       *Term
	serverTime time.Time // server's clock in the ping's reply
}

// choreLoop runs the chores one after the other. It is separate from the ping loop, so that a slow
// chore does not delay a ping.
func (p *LockPinger) choreLoop() {
	defer p.loops.Done()
	pruneAt, silent := p.clock.Now().Mono, silentPings{}
	prepared, position := false, ""
	failing := map[string]bool{}
	step := func(name string, do func() error) bool { return p.step(failing, name, do) }
	for {
		select {
		case <-p.stopping.Done():
			return
		case c := <-p.chores:
			step("reap", func() error { return p.Reap(p.stopping, c.term) })
			step("hello", func() error { return p.hello(p.stopping) })
			if !prepared {
				prepared = p.guarded("prepare", func() error { return p.prepare(p.stopping) })
			}
			if now := p.clock.Now().Mono; now >= pruneAt { // after the first ping, then rarely
				step("prune", func() error { return p.prune(p.stopping, c.serverTime, silent) })
				if p.cfg.PruneLocks && !c.serverTime.IsZero() {
					step("prune locks", func() (err error) {
						position, err = p.pruneLocks(p.stopping, c.serverTime, position)
						return err
					})
				}
				pruneAt = now + min(p.Jitter(p.cfg.PruneEvery, 0.5), silent.due(p.cfg.Interval))
			}
		}
	}
}

// step runs one chore. It logs a failure once per episode. It does not log an unavailable server,
// because the ping logs that.
func (p *LockPinger) step(failing map[string]bool, name string, do func() error) bool {
	return p.guarded(name, func() error {
		err := do()
		quiet := failing[name] || p.stopping.Err() != nil || errors.Is(err, catalog.ErrUnavailable)
		if err != nil && !quiet {
			p.log.Warn().Err(err).Str("step", name).Msg("chore failed")
		}
		failing[name] = err != nil
		return err
	})
}

// hello reads the current primary, because an election restarts every watch.
func (p *LockPinger) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	s, err := p.cfg.Store.Hello(ctx)
	if err != nil {
		return err
	}
	p.SetServer(s)
	return nil
}

// prepare creates the indexes. A failure is only a warning: without indexes, locks work but are
// slower.
func (p *LockPinger) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	warnings, err := p.cfg.Store.Prepare(ctx)
	for _, w := range warnings {
		p.log.Warn().Str("problem", w).Msg("index")
	}
	if err != nil && p.stats.prepareFailed.CompareAndSwap(false, true) && p.stopping.Err() == nil {
		p.log.Warn().Err(err).Msg("indexes not created")
	}
	var denied *catalog.PrivilegeError
	if errors.As(err, &denied) {
		return nil // another try would only fill the server's log
	}
	return err
}

// Reap compares this process's sessions in the lock documents, holders and waiters, with the
// sessions that the process owns. A session without an owner is a ghost of a command that was
// applied although its reply was lost. Reap releases the ghost or removes it from the queue. It
// reports a guard that is missing in the store to the owner. It sends one read. The size of the
// reply grows with the sessions of the process: 10,000 held locks are 1.5 MB, and take 14 ms to
// decode (measured).
//
// Reap must follow an acknowledged ping of t, so that it never runs in a twin with the same process
// id. Its findings count, and the release of a ghost is sent, only while t lasts: the read may be
// slow, and a later ping may have found a twin.
func (p *LockPinger) Reap(ctx context.Context, t *Term) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	before, swept := p.cfg.Owner.Sweep(t)
	defer swept()
	listed, resting := p.queue.sessions()
	stored, err := p.cfg.Store.Held(ctx, t.Process())
	if err != nil || t.Err() != nil {
		p.releaseAgain()
		return err
	}
	// The owner is asked AFTER the reply, and it records an attempt before the attempt is sent. So
	// a new acquisition is never treated as a ghost. A guard or a queued release that existed
	// before the read and is gone now was released in between.
	known := make(map[catalog.Session]bool, len(before)+len(listed))
	for _, s := range slices.Concat(before, listed) {
		known[s] = true
	}
	seen := make(map[catalog.Session]bool, len(stored))
	left := make(map[catalog.Session]bool, len(stored))
	for _, s := range stored {
		if !s.Waits {
			seen[s.Session] = true
		}
		left[s.Session] = true
		if !p.cfg.Owner.Owns(s.TS) && !known[s.Session] && !p.queue.has(s.Session) {
			p.stats.ghosts.Add(1)
			p.log.Warn().Str("lock", catalog.Printable(s.Name, 200)).Stringer("ts", s.TS).
				Str("process", t.Process()).Bool("waits", s.Waits).
				Msg("ghost of a lost reply is released")
			p.enlist(s.Session, release{late: true, ghost: true, term: t})
		}
	}
	p.checkReleases(resting, left)
	gone := slices.DeleteFunc(before, func(s catalog.Session) bool { return seen[s] })
	slices.SortFunc(gone, catalog.Session.Compare)
	for _, s := range gone {
		p.cfg.Owner.Vanished(ctx, s)
	}
	return nil
}

// Doubt records that a session of this process may appear in a lock later: the outcome of a command
// that acquires or queues is unknown, and the store does not contain its session yet. Reap finds
// the session when it appears. Close reaps once more. t is the term of the command. The doubt
// belongs to t's process id, and ends if that id is a twin's.
func (p *LockPinger) Doubt(t *Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubted == nil {
		p.doubted = map[*identity]bool{}
	}
	p.doubted[t.id] = true
}

// settle reaps once more for the doubts. settled is false if one of their sessions may stay held.
// Sessions of an earlier id stay until they are taken over, unless the id is a twin's. pinged is
// true if settle sent a ping.
func (p *LockPinger) settle(ctx context.Context) (settled, pinged bool) {
	p.mu.Lock()
	doubted := maps.Clone(p.doubted)
	p.mu.Unlock()
	now := p.Last().id
	settled = true
	for id := range doubted {
		if id.used.Err() != nil && !id.twins() {
			settled = false
		}
	}
	if !doubted[now] || now.used.Err() != nil {
		return settled, false
	}
	return p.lastReap(ctx, now) && settled, true
}

// lastReap reaps the ghosts that appeared since the last ping. It pings first, because a process
// with a twin must not reap. It reports whether no ghost of the id stays held. If the ping ends the
// id, it cannot reap. That is a success only if the id is a twin's, because then its sessions are
// the twin's.
func (p *LockPinger) lastReap(ctx context.Context, id *identity) bool {
	return p.guarded("last reap", func() error {
		if err := p.Ping(ctx); err != nil {
			return err
		}
		t := p.Last()
		if t.id != id && !id.twins() {
			return context.Cause(id.used)
		}
		return errors.Join(p.Reap(ctx, t), t.Err())
	})
}
