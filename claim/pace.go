package claim

import (
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// A pace is the pause before the next command of this process on rows. A failure or a timeout
// doubles the pause and makes it at least as long as the command took. A success halves it. With a
// slow server fewer processes therefore send commands at a time, so that rows are finished. Safe
// for concurrent use.
type pace struct {
	clock clock.Clock

	mu    sync.Mutex // guards the rest
	pause time.Duration
	since time.Duration // when the pause was last doubled
}

// Bounds of the pause.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = time.Minute
)

// note records the result of a command that was sent at a time. A command that was sent before the
// last failure does not double the pause again.
func (p *pace) note(at time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil || answered(err):
		if p.pause /= 2; p.pause < leastPause {
			p.pause = 0
		}
	case at >= p.since:
		p.since = p.clock.Now().Mono
		p.pause = min(max(2*p.pause, p.since-at, leastPause), mostPause)
	}
}

// now returns the pause.
func (p *pace) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pause
}

// wait waits for the pause, give or take half of it. It returns false if done is closed first.
func (p *pace) wait(done <-chan struct{}) bool {
	pause := p.now()
	if pause == 0 {
		return !clock.Over(done)
	}
	return clock.Sleep(p.clock, pause/2+upTo(p.clock, pause), done)
}

// upTo returns a random number from 0 to most, drawn from the clock.
func upTo[T ~int | ~int64](c clock.Clock, most T) T { return T(clock.Chance(c) * float64(most+1)) }

// jittered returns d, give or take a random fifth.
func jittered(c clock.Clock, d time.Duration) time.Duration { return d - d/5 + upTo(c, 2*d/5) }
