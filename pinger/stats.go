package pinger

import (
	"sync/atomic"
	"time"
)

// Stats counts what a pinger has done since it was made.
type Stats struct {
	Pings       int64         // acknowledged
	Failures    int64         // not acknowledged
	ProcessIDs  int64         // that were given up
	Ghosts      int64         // ghosts of lost replies found
	Late        int64         // late releases done
	Pruned      int64         // old pings deleted
	Panics      int64         // recovered
	MaxLateness time.Duration // worst lateness of the loop itself
	Lateness    time.Duration // the latest
	// Skew is by how much the server's clock was ahead of this machine's at the last acknowledged
	// ping, give or take half of its round trip.
	Skew time.Duration
	Left int // sessions that are yet to be taken out of their locks
}

type counters struct {
	pings, failures, sessions, ghosts, late, pruned, panics, maxLate, lateness, skew atomic.Int64

	prepareFailed atomic.Bool
	lateEpisode   bool // owned by the ping loop
}

func (c *counters) note(late time.Duration) {
	c.lateness.Store(int64(late))
	if int64(late) > c.maxLate.Load() { // only the ping loop writes it
		c.maxLate.Store(int64(late))
	}
}

// Stats returns the counts so far.
func (p *LockPinger) Stats() Stats {
	c := &p.stats
	return Stats{
		Pings: c.pings.Load(), Failures: c.failures.Load(), ProcessIDs: c.sessions.Load(),
		Ghosts: c.ghosts.Load(), Late: c.late.Load(), Pruned: c.pruned.Load(),
		Panics: c.panics.Load(), MaxLateness: time.Duration(c.maxLate.Load()),
		Lateness: time.Duration(c.lateness.Load()), Skew: time.Duration(c.skew.Load()), Left: p.queue.len(),
	}
}
