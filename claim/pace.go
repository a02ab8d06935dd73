package claim

import (
	"context"
	"fmt"
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

// clockAge is the age after which the server's clock is read again. Within that time a jump of the
// clock, or a new primary's clock, is noticed.
const clockAge = time.Minute

// serverNow returns a lower bound of the server's time: the time in its last reply plus the time
// since that reply arrived. It sends one command a minute. All processes measure pauses and due
// times with it, so that their own clocks do not matter.
func (e *engine) serverNow() (time.Time, error) {
	now, age := e.lastNow()
	if age <= clockAge {
		return now, nil
	}
	now, err := sent(e, e.readClock)
	if err != nil {
		err = fmt.Errorf("claim: read the server's clock: %w", err)
	}
	return now, err
}

// readClock reads the server's clock, unless another goroutine has just read it.
func (e *engine) readClock(ctx context.Context) (time.Time, error) {
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
	if now, age := e.lastNow(); age <= clockAge {
		return now, nil
	}
	now, err := e.store.Now(ctx)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.said, e.replied = now, e.clock.Now().Mono
	}
	return now, err
}

// lastNow returns the server's time, estimated from its last reply, and the age of that reply. It
// does no I/O.
func (e *engine) lastNow() (now time.Time, age time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.said.IsZero() {
		return time.Time{}, clockAge + 1
	}
	age = e.clock.Now().Mono - e.replied
	return e.said.Add(age), age
}

// wall returns the server's time for people, estimated from its last reply. Without a reply it
// returns the time of this process.
func (e *engine) wall() time.Time {
	now, _ := e.lastNow()
	if now.IsZero() {
		now = e.clock.Now().Wall
	}
	return now.Truncate(time.Millisecond)
}

// notBefore returns the time after a pause. Rounding to the whole milliseconds of the server's
// clock and of rows never shortens the pause.
func notBefore(now time.Time, pause time.Duration) time.Time {
	if pause > 0 {
		pause += 2*time.Millisecond - 1
	}
	return now.Add(pause).Truncate(time.Millisecond)
}

// gather is the time that a process waits for more due retries, because one command wakes all of
// them. The rescue wakes retries with a pause longer than ownRetry.
const (
	gather   = 20 * time.Millisecond
	ownRetry = time.Minute
)

// wakeAt wakes the due retries at a time by the server's clock, unless that is more than ownRetry
// away.
func (e *engine) wakeAt(at time.Time) {
	now, _ := e.lastNow()
	pause := max(at.Sub(now), 0) + gather
	if pause > ownRetry {
		return
	}
	go func() {
		if clock.Sleep(e.clock, pause, e.life.Done()) {
			signal(e.due)
		}
	}()
}

// backoff returns the pause after attempt n.
func (e *engine) backoff(n int64) time.Duration {
	pause, most := e.cfg.Backoff, max(mostBackoff, e.cfg.Backoff)
	for i := int64(1); i < n && pause < most; i++ {
		pause *= e.cfg.growth
	}
	return jittered(e.clock, min(pause, most))
}
