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

// choreLoop runs the chores one after the other, beside the ping loop, so that none of them can
// make a ping late.
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
			if now := p.clock.Now().Mono; now >= pruneAt { // at the first tick, then rarely
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

// step runs one chore. Its failure is logged once per episode, except that the server is away,
// which the ping says.
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

// hello notes who the server is now, so that an election is seen and restarts every watch.
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

// prepare creates the indexes. A failure is only a warning: locks work without them, slower.
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
		return nil // asking again would only fill the server's log
	}
	return err
}

// Reap compares the sessions with which this process stands in lock documents, as a holder or in a
// line, with what the process owns. One that nobody owns is a ghost of a command that was lost and
// carried out all the same: it is released by its session, or taken out of the line. A guard that
// the store does not show is reported to the owner. One read, as large as the process has sessions:
// with 10,000 held locks 1.5 MB, and 14 ms to decode it (measured).
//
// It must follow an acknowledged ping of t, so that a twin with the same process id never gets
// here; and what it has seen counts only while t lasts, to the very release of a ghost: a read may
// be slow, and a later ping may have found a twin.
func (p *LockPinger) Reap(ctx context.Context, t *Term) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	p.cfg.Owner.Sweep()
	defer p.cfg.Owner.Swept()
	before := p.cfg.Owner.Guarded(t)
	listed, _ := p.queue.list()
	idle := p.queue.idle()
	stored, err := p.cfg.Store.Held(ctx, t.Process())
	if err != nil || t.Err() != nil {
		p.releaseAgain()
		return err
	}
	// The local table is asked AFTER the reply, and an attempt is entered in it before it is
	// sent: so a fresh acquisition can never be taken for a ghost. A guard that was there before
	// the read, or an entry of the list, and is not any more was released meanwhile.
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
			p.queue.add(s.Session, release{late: true, ghost: true, term: t})
		}
	}
	for _, s := range idle {
		p.again(s, left[s])
	}
	p.work()
	gone := slices.DeleteFunc(before, func(s catalog.Session) bool { return seen[s] })
	slices.SortFunc(gone, catalog.Session.Compare)
	for _, s := range gone {
		p.cfg.Owner.Vanished(ctx, s)
	}
	return nil
}

// Doubt notes that this process may come to stand in a lock although nobody knows of it: the
// outcome of a command that takes a lock or a place in its line is unknown, and the store does not
// show it yet. Reap finds it when it appears; Close looks for it once more. t is the term of the
// command: the doubt is one of its process id, and ends with that where the id is a twin's now.
func (p *LockPinger) Doubt(t *Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubted == nil {
		p.doubted = map[*identity]bool{}
	}
	p.doubted[t.id] = true
}

// settle looks once more for what a doubted command may have taken, and reports whether it could:
// what an id has that was given up is taken over in time, unless it is a twin's. pinged is true
// when a ping was sent for it.
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

// lastReap looks for ghosts that appeared since the last tick. It pings first: a twin must not get
// to the reaper. It reports whether the store answered for the id. Where that ping gives the id up
// nobody may reap it; only to a twin nothing stays held, since what stands under the id is the
// twin's.
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
