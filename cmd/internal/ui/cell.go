package ui

import (
	"context"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// cellLimit bounds one reading of a cell.
const cellLimit = 10 * time.Second

// A cell keeps what is asked for only where somebody looks at it, for all who look, for a while.
type cell[T any] struct {
	clock clock.Clock
	keep  time.Duration
	read  func(context.Context) (T, error)

	mu    sync.Mutex // guards the rest, and is held while it reads: the others wait for the answer
	known bool
	at    clock.Reading
	value T
	err   error
}

// get returns the value, read anew if it is too old, and why it could not be read.
func (c *cell[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.known && now.Mono-c.at.Mono < c.keep {
		return c.value, c.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cellLimit) // others need it when this one has gone
	defer cancel()
	c.value, c.err = c.read(ctx)
	c.known, c.at = true, c.clock.Now()
	return c.value, c.err
}
