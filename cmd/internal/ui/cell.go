package ui

import (
	"context"
	"sync"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/internal/clock"
)

const cellLimit = 10 * time.Second

// A cell caches a value that all browsers share. It reads the value only on demand.
type cell[T any] struct {
	clock clock.Clock
	keep  time.Duration
	read  func(context.Context) (T, error)

	format func(error) string // formats an error without secrets

	mu     sync.Mutex // guards the rest; held during a read, so that all callers wait for its result
	known  bool
	at     clock.Reading
	latest reading[T]
}

// get returns the cached value. A value that is older than c.keep is read again.
func (c *cell[T]) get(ctx context.Context) reading[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.known && now.Mono-c.at.Mono < c.keep {
		return c.latest
	}
	// The read outlives the request of one browser, because all browsers share the value.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cellLimit)
	defer cancel()
	value, err := c.read(ctx)
	problem := ""
	if err != nil {
		problem = c.format(err)
	}
	c.known, c.at = true, c.clock.Now()
	c.latest = c.latest.next(value, problem, c.at.Wall)
	return c.latest
}

// countWait is the longest time for which a page waits for a new count.
const countWait = time.Second

// A deadCounter counts dead rows in a separate goroutine, so that a slow count does not delay the
// page.
type deadCounter struct {
	clock  clock.Clock
	count  func(ctx context.Context, queues []string) (int64, error)
	format func(error) string // formats an error without secrets
	wg     sync.WaitGroup

	mu              sync.Mutex // guards the rest
	latest          reading[int64]
	next            time.Duration // the time of the next count, in monotonic time; 0 before the first
	running, closed bool
}

// get returns the latest count. It starts a new count if the pause after the latest count is over.
// The new count ends with ctx. If the latest count is old or missing, get waits for the new count,
// but at most countWait.
func (t *deadCounter) get(ctx context.Context, queues []string) reading[int64] {
	t.mu.Lock()
	now, counted := t.clock.Now().Mono, make(chan struct{})
	begins := !t.running && !t.closed && now >= t.next
	old := t.next == 0 || now >= t.next+keepDead
	if begins {
		t.running = true
		t.wg.Go(func() {
			defer close(counted)
			t.run(ctx, queues)
		})
	}
	t.mu.Unlock()
	if begins && old {
		clock.Sleep(t.clock, countWait, counted)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latest
}

func (t *deadCounter) run(ctx context.Context, queues []string) {
	ctx, cancel := context.WithTimeout(ctx, cellLimit)
	defer cancel()
	begun := t.clock.Now()
	n, err := t.count(ctx, queues)
	problem := ""
	if err != nil {
		problem = t.format(err)
	}
	ended := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latest = t.latest.next(n, problem, ended.Wall)
	t.next = ended.Mono + max(keepDead, (busyShare-1)*(ended.Mono-begun.Mono))
	t.running = false
}

// close waits for a running count and prevents further counts. The caller must first cancel the
// context of the counts.
func (t *deadCounter) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}

// A reading is the latest value that was read from the server, the error of the latest attempt, or
// both. Before the first success there is no value, and pages show "Unknown". Pages format every
// reading with [contentOf].
type reading[T any] struct {
	value   T
	at      time.Time // by this machine's clock; zero before the first success
	tried   time.Time // the latest attempt, successful or not
	problem string    // the error of the latest attempt; empty after a success
}

// next returns the reading after another attempt. If the attempt failed, the earlier value and its
// time stay.
func (r reading[T]) next(value T, problem string, now time.Time) reading[T] {
	if problem != "" {
		return reading[T]{r.value, r.at, now, problem}
	}
	return reading[T]{value, now, now, ""}
}

// old returns the age of the value if the latest attempt failed. It returns 0 after a success or
// without a value.
func (r reading[T]) old() time.Duration {
	if r.problem == "" || r.at.IsZero() {
		return 0
	}
	return max(r.tried.Sub(r.at), 1)
}

type content struct {
	Known   bool // false without a value; then Data is empty
	Data    any
	AsOf    string // the time of the read, if the latest attempt failed
	Problem string // the error of the latest attempt
}

// contentOf formats a reading for a page. It formats the value with the given function, if there is
// a value.
func contentOf[T any](r reading[T], show func(T) any) content {
	c := content{Problem: r.problem}
	if !r.at.IsZero() {
		c.Known, c.Data = true, show(r.value)
	}
	if old := r.old(); old > 0 {
		c.AsOf = "as of " + r.at.UTC().Format("15:04:05") + " UTC, " + words.Age(old) + " ago"
	}
	return c
}

func identity[T any](value T) any { return value }
