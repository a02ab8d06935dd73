package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// A serverClock estimates the clock of the collection's server. All processes measure pauses and
// due times with it, so that their own clocks do not matter. Safe for concurrent use.
type serverClock struct {
	own    clock.Clock
	read   func(context.Context) (time.Time, error) // one command
	asking chan struct{}                            // one element while the clock is read

	mu      sync.Mutex // guards the rest
	known   bool
	said    time.Time
	replied time.Duration // monotonic time of the reply
}

// clockAge is the age after which the server's clock is read again. Within that time a jump of the
// clock, or a new primary's clock, is noticed.
const clockAge = time.Minute

// now returns a lower bound of the server's time: the time in its last reply plus the time since
// that reply arrived.
func (s *serverClock) now(ctx context.Context) (time.Time, error) {
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
	if now, age := s.last(); age <= clockAge {
		return now, nil
	}
	said, err := s.read(ctx)
	if err == nil && said.IsZero() {
		err = errors.New("the reply has no time")
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("read the server's clock: %w", err)
	}
	s.mu.Lock()
	s.known, s.said, s.replied = true, said, s.own.Now().Mono
	s.mu.Unlock()
	now, _ := s.last()
	return now, nil
}

// last returns the server's time, estimated from its last reply, and the age of that reply. It does
// no I/O.
func (s *serverClock) last() (now time.Time, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return time.Time{}, clockAge + 1
	}
	age = s.own.Now().Mono - s.replied
	return s.said.Add(age), age
}

// serverNow returns a lower bound of the server's time. It sends one command a minute.
func (e *engine) serverNow() (time.Time, error) {
	if now, age := e.server.last(); age <= clockAge {
		return now, nil
	}
	now, err := sent(e, e.server.now)
	if err != nil {
		err = fmt.Errorf("claim: %w", err)
	}
	return now, err
}

// wall returns the server's time for people, estimated from its last reply. Without a reply it
// returns the time of this process.
func (e *engine) wall() time.Time {
	now, _ := e.server.last()
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
	now, _ := e.server.last()
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
