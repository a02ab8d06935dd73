package pinger

import (
	"context"
	"maps"
	"math"
	"time"

	"mongodlm/catalog"
)

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
func (s silentPings) note(old []catalog.OldPing, now, least time.Duration) (ripe []catalog.OldPing) {
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
