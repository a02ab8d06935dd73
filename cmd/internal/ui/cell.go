package ui

import (
	"context"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// cellLimit bounds one read of a cell.
const cellLimit = 10 * time.Second

// A cell caches a value for all viewers. It reads the value only while a page shows it.
type cell[T any] struct {
	clock clock.Clock
	keep  time.Duration
	read  func(context.Context) (T, error)

	word func(error) string // formats an error without secrets

	mu     sync.Mutex // guards the rest; held during a read, so that all callers wait for its result
	known  bool
	at     clock.Reading
	latest reading[T]
}

// get returns the value. It reads the value again if it is too old.
func (c *cell[T]) get(ctx context.Context) reading[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.known && now.Mono-c.at.Mono < c.keep {
		return c.latest
	}
	// The read outlives the caller, because callers share the value.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cellLimit)
	defer cancel()
	value, err := c.read(ctx)
	problem := ""
	if err != nil {
		problem = c.word(err)
	}
	c.known, c.at = true, c.clock.Now()
	c.latest = c.latest.next(value, problem, c.at.Wall)
	return c.latest
}
