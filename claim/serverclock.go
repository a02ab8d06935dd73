package claim

import (
	"context"
	"fmt"
	"time"

	"mongodlm/internal/clock"
)

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
