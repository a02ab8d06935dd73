package pinger

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"mongodlm/catalog"
)

// A chore is the work that follows an acknowledged ping.
type chore struct {
	term       *Term
	serverTime time.Time // server's clock in the ping's reply
}

// choreLoop does the work that follows acknowledged pings. It is a goroutine of its own, so slow
// work does not delay a ping.
func (p *LockPinger) choreLoop() {
	defer p.loops.Done()
	pruneAt, silent := p.clock.Now().Mono, silentPings{}
	prepared, position := false, ""
	failing := map[string]bool{}
	step := func(name string, do func() error) { p.step(failing, name, do) }
	for {
		select {
		case <-p.stopping.Done():
			return
		case c := <-p.chores:
			step("reap", func() error { return p.Reap(p.stopping, c.term) })
			step("hello", func() error { return p.hello(p.stopping) })
			if !prepared {
				prepared = p.protect("prepare", func() error { return p.prepare(p.stopping) })
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

// step runs one part of the chores. Of a series of failures it logs only the first. It does not log
// an unavailable server, because the ping loop logs that.
func (p *LockPinger) step(failing map[string]bool, name string, do func() error) {
	p.protect(name, func() error {
		err := do()
		quiet := failing[name] || p.stopping.Err() != nil || errors.Is(err, catalog.ErrUnavailable)
		if err != nil && !quiet {
			p.log.Warn().Err(err).Str("step", name).Msg("chore failed")
		}
		failing[name] = err != nil
		return err
	})
}

// hello asks the server which member is primary. After an election, contenders restart their
// watches of silent processes.
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

// prepare creates the indexes. Without them locks work, but more slowly.
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

// Reap compares the sessions of this process in the lock documents with the sessions that the
// process owns. A session that is in the store but not owned is a ghost. A ghost is left by a
// command whose reply was lost, and Reap releases it. If the store does not contain the session of
// a guard, Reap reports the guard to the owner. Reap sends one read and returns the error of that
// read. For 10,000 held locks, the reply has a size of 1.5 MB and takes 14 ms to decode.
//
// Reap must follow an acknowledged ping of term t. That ping shows that no twin, a copy of this
// process, uses the same process id. Reap acts only while t lasts, because a later ping may find a
// twin.
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
	// The owner records an acquisition BEFORE it sends the command, and Reap calls Owns AFTER the
	// reply of the read. So Reap never takes a new acquisition for a ghost. The map known contains the
	// guards and the queued releases from before the read, because these may have been released since
	// then.
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
		owned := p.cfg.Owner.Owns(s.TS) // first: an owner queues a session before it drops it
		if !p.queue.update(s.Session, t) && !owned && !known[s.Session] {
			p.stats.ghosts.Add(1)
			p.log.Warn().Str("lock", catalog.Printable(s.Name, 200)).Stringer("ts", s.TS).
				Str("process", t.Process()).Bool("waits", s.Waits).
				Msg("ghost of a lost reply is released")
			p.enlist(s.Session, release{late: true, ghost: true, maybe: true, term: t})
		}
	}
	p.checkReleases(resting, left, t)
	gone := slices.DeleteFunc(before, func(s catalog.Session) bool { return seen[s] })
	slices.SortFunc(gone, catalog.Session.Compare)
	for _, s := range gone {
		p.cfg.Owner.Vanished(ctx, s)
	}
	return nil
}

// Doubt records that a command of term t has an unknown outcome, and that its session may appear in
// a lock later. Reap releases the session when it appears. After a call of Doubt, Close reaps once
// more, unless the process has given up the id of t.
func (p *LockPinger) Doubt(t *Term) { t.id.doubted.Store(true) }

// settle sends a ping after a call of Doubt, and if the term is over. The ping detects a twin, a
// second process with the same id, to which the sessions then belong. After a call of Doubt, settle
// also reaps. The result certain is false if a session with an unknown outcome may stay in its lock
// until a takeover. The error is that of the ping.
func (p *LockPinger) settle(ctx context.Context) (certain bool, proof error) {
	id := p.Last().id
	doubted := id.doubted.Load()
	switch {
	case id.used.Err() != nil: // no ping of the next id was acknowledged
		return !doubted || id.twins(), nil
	case !doubted && p.Term() != nil:
		return true, nil
	}
	reaped := p.protect("last reap", func() error {
		if proof = p.Ping(ctx); proof != nil || !doubted {
			return proof
		}
		p.queue.wait(false) // Reap drops no release that is in progress
		t := p.Last()
		if t.id != id {
			return context.Cause(id.used)
		}
		return errors.Join(p.Reap(ctx, t), t.Err())
	})
	return reaped || !doubted || id.twins(), proof
}

// silentPings holds the old ping documents that the last pruning read, by process id.
type silentPings map[string]silentPing

// A silentPing is an old ping document, and the time since which it has been unchanged.
type silentPing struct {
	catalog.OldPing
	since time.Duration // monotonic time of the first pruning that read this state
	again bool          // a later pruning has read the same state
}

// note replaces the documents of the last pruning by the documents that the present pruning has
// read. It returns the documents that were unchanged for at least the given duration, and for at
// least the ping interval of their process.
func (s silentPings) note(
	old []catalog.OldPing, now, least time.Duration,
) (ripe []catalog.OldPing) {
	before := maps.Clone(s)
	clear(s)
	for _, p := range old {
		known, ok := before[p.Process]
		if !ok || !known.At.Equal(p.At) {
			s[p.Process] = silentPing{OldPing: p, since: now}
			continue
		}
		s[p.Process] = silentPing{OldPing: p, since: known.since, again: true}
		if now-known.since >= max(least, p.Interval) {
			ripe = append(ripe, p)
		}
	}
	return ripe
}

// due returns the time until the next pruning that can delete a document. A pruning deletes a
// document only if an earlier pruning has read it unchanged.
func (s silentPings) due(interval time.Duration) time.Duration {
	due := time.Duration(math.MaxInt64)
	for _, p := range s {
		if !p.again {
			due = min(due, max(interval, p.Interval))
		}
	}
	return due
}

// prune deletes ping documents that are older than the prune age by the server's clock. It keeps
// the ping of a process that a lock document names. It deletes a document only if an earlier
// pruning read the same state, at least one ping interval ago. So one wrong reading of the server's
// clock, or one wrong date in a ping, deletes no ping of a living process.
func (p *LockPinger) prune(ctx context.Context, serverTime time.Time, silent silentPings) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	if serverTime.IsZero() {
		return nil
	}
	now := p.clock.Now().Mono
	old, err := p.cfg.Store.OldPings(ctx, serverTime.Add(-p.cfg.PruneAge))
	if err != nil {
		return err
	}
	ripe := silent.note(old, now, p.cfg.Interval)
	if len(ripe) == 0 {
		return nil
	}
	n, err := p.cfg.Store.Prune(ctx, ripe)
	p.stats.pruned.Add(int64(n))
	if n > 0 {
		p.log.Info().Int("pings", n).Msg("pruned")
	}
	return err
}

const (
	pruneBatch   = 1000 // lock documents that one command reads
	pruneBatches = 10   // commands of one prune
)

// pruneLocks deletes the documents of free locks that were not acquired for the prune age. Each
// call handles a range of names in order, which begins behind the given name. The result is the
// argument for the next call.
func (p *LockPinger) pruneLocks(ctx context.Context, now time.Time, after string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Limit)
	defer cancel()
	for range pruneBatches {
		n, next, err := p.cfg.Store.PruneLocks(ctx, now.Add(-p.cfg.PruneAge), after, pruneBatch)
		if n > 0 {
			p.log.Info().Int("locks", n).Msg("pruned")
		}
		if err != nil || next == "" {
			return next, err
		}
		after = next
	}
	return after, nil
}
