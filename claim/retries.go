package claim

import (
	"context"
	"slices"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// retries are the times, by the server's clock, at which rows are due that this process has put
// off: it looks for them then. Safe for concurrent use.
type retries struct {
	sooner chan struct{} // one element when there is an earlier first one

	mu sync.Mutex  // guards at
	at []time.Time // the earliest first
}

// mostRetries is how many are remembered, and gather how long one waits for others: rows that are
// due at about the same time are one command. What is forgotten is found within Tend.
const (
	mostRetries = 1000
	gather      = 20 * time.Millisecond
)

func (r *retries) add(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.at, at, time.Time.Compare)
	if r.at = slices.Insert(r.at, i, at); len(r.at) > mostRetries {
		r.at = r.at[:mostRetries]
	}
	if i == 0 {
		signal(r.sooner)
	}
}

// first returns the earliest, false when there is none.
func (r *retries) first() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) == 0 {
		return time.Time{}, false
	}
	return r.at[0], true
}

// passed forgets those that are over.
func (r *retries) passed(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.at, now.Add(1), time.Time.Compare)
	r.at = slices.Delete(r.at, 0, i)
}

// backoff is the pause after the n'th attempt.
func (e *engine) backoff(n int64) time.Duration {
	pause := e.cfg.Backoff
	for i := int64(1); i < n && pause < e.cfg.BackoffMax; i++ {
		pause *= e.cfg.growth
	}
	return jittered(e.clock, min(pause, e.cfg.BackoffMax))
}

// putOff says until when rows that failed, or were given back, are left alone. It reads the
// server's clock only when there are such rows. No pause is shorter than it was said to be: the
// server tells whole milliseconds, and a row keeps whole ones.
func (e *engine) putOff(ctx context.Context, endings []rows.Ending) error {
	if !slices.ContainsFunc(endings, isRetry) {
		return nil
	}
	now, err := e.serverNow(ctx)
	if err != nil {
		return err
	}
	for i, end := range endings {
		due := now.Add(end.Pause)
		if end.Pause > 0 {
			due = due.Add(2*time.Millisecond - 1)
		}
		if isRetry(end) {
			endings[i].NotBefore = due.Truncate(time.Millisecond)
		}
	}
	return nil
}

func isRetry(end rows.Ending) bool { return end.To == rows.Retrying }

// sleepUntil waits until a time by the own monotonic clock, or until a row that this process has
// put off is due.
func (e *engine) sleepUntil(until time.Duration) bool {
	for {
		pause := until - e.clock.Now().Mono
		if at, is := e.retries.first(); is {
			now, _ := e.server.last()
			pause = min(pause, max(at.Sub(now), gather))
		}
		if pause <= 0 {
			return e.life.Err() == nil
		}
		t := e.clock.NewTimer(pause)
		select {
		case <-t.C():
			return e.life.Err() == nil
		case <-e.life.Done():
			t.Stop()
			return false
		case <-e.retries.sooner:
			t.Stop()
		}
	}
}

// tidyDue makes rows ready that this process has put off. One command, none when it is too early.
func (e *engine) tidyDue(ctx context.Context) error {
	now, err := e.serverNow(ctx)
	if err != nil {
		now, _ = e.server.last()
	}
	at, is := e.retries.first()
	if s := e.current(); err == nil && is && !at.After(now) && s != nil && s.err() == nil {
		err = e.tidy(ctx, s)
	}
	e.retries.passed(now) // after an error the next Tend finds them
	return err
}

// upTo is a number from 0 to most, by the chance of the clock.
func upTo[T ~int | ~int64](c clock.Clock, most T) T { return T(clock.Chance(c) * float64(most+1)) }

// jittered is a pause give or take a fifth.
func jittered(c clock.Clock, d time.Duration) time.Duration { return d - d/5 + upTo(c, 2*d/5) }
