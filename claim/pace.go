package claim

import (
	"fmt"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// A pace is the pause before this process's next command on rows. A failure or a timeout doubles
// the pause, to at least the duration of the failed command. A success halves the pause. So fewer
// processes send commands at the same time to a slow server. A pace is safe for concurrent use.
type pace struct {
	clock clock.Clock

	mu    sync.Mutex // guards the rest
	pause time.Duration
	since time.Duration // when the pause was last doubled
}

const (
	leastPause = 100 * time.Millisecond
	mostPause  = time.Minute
)

// note records the result of a command that was sent at the given time. If concurrent commands
// fail, only the first failure doubles the pause.
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

func (p *pace) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pause
}

// wait waits for 50 to 150 percent of the pause. It returns false if done is closed first.
func (p *pace) wait(done <-chan struct{}) bool {
	pause := p.now()
	if pause == 0 {
		return !clock.Over(done)
	}
	return clock.Sleep(p.clock, pause/2+upTo(p.clock, pause), done)
}

// rest returns the minimum pause after a background command that took the given time.
func rest(took time.Duration) time.Duration { return min(rare*took, mostPause) }

// upTo returns a random number from 0 to most. The clock is the source of randomness.
func upTo[T ~int | ~int64](c clock.Clock, most T) T { return T(clock.Chance(c) * float64(most+1)) }

// jittered returns a random duration from 80 to 120 percent of d.
func jittered(c clock.Clock, d time.Duration) time.Duration { return d - d/5 + upTo(c, 2*d/5) }

// clockAge is the time after which a process reads the server's clock again. A jump of that clock,
// or the clock of a new primary, takes effect within this time.
const clockAge = time.Minute

// serverNow estimates the time of the server's clock. The estimate is the time in the server's
// last reply plus the time since that reply. The server's clock shows at least this time, unless
// it was set back within clockAge. Each caller sends at most one command a minute. Pauses and due
// times use serverNow, so that the processes' own clocks do not matter.
func (e *engine) serverNow() (time.Time, error) {
	now, age := e.lastNow()
	if age <= clockAge {
		return now, nil
	}
	now, err := sent(e, e.store.Now)
	if err != nil {
		return now, fmt.Errorf("claim: read the server's clock: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said, e.replied = now, e.clock.Now().Mono
	return now, nil
}

// lastNow estimates the server's time from its last reply, and returns the age of that reply. It
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

// wall returns the time that is stored in a row as the end of a claim. It is the estimated time of
// the server. Before the first reply of the server, it is the time of this process's clock.
func (e *engine) wall() time.Time {
	now, _ := e.lastNow()
	if now.IsZero() {
		now = e.clock.Now().Wall
	}
	return now.Truncate(time.Millisecond)
}

// notBefore returns the time at which a pause ends, in whole milliseconds. The rounding never
// shortens the pause.
func notBefore(now time.Time, pause time.Duration) time.Time {
	if pause > 0 {
		pause += 2*time.Millisecond - 1
	}
	return now.Add(pause).Truncate(time.Millisecond)
}

// gather is the additional time that a process waits before it wakes a due retry. One command can
// then wake several retries. If the pause before a retry is longer than ownRetry, the process that
// holds the rescue lock wakes the retry.
const (
	gather   = 20 * time.Millisecond
	ownRetry = time.Minute
)

// wakeAt makes this process wake due retries at the given time of the server's clock. If that time
// is more than ownRetry away, wakeAt does nothing.
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

// backoff returns the pause after the n-th failed attempt.
func (e *engine) backoff(n int64) time.Duration {
	pause, most := e.cfg.Backoff, max(mostBackoff, e.cfg.Backoff)
	for i := int64(1); i < n && pause < most; i++ {
		pause *= e.cfg.growth
	}
	return jittered(e.clock, min(pause, most))
}
