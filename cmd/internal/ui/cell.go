package ui

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"mongodlm/cmd/internal/words"
)

// The commands of a round have their own limits, so roundLimit is only the limit of their sum.
const (
	cellLimit  = 10 * time.Second // of a read, for a cell without a limit of its own
	roundLimit = 10 * time.Minute
)

// busyShare bounds the load on the server. The pause after a read is at least nine times the
// duration of the read.
const busyShare = 10

// A cell caches a value that all browsers share. It reads the value only on demand.
type cell[T any] struct {
	keep  time.Duration // the shortest pause between two reads
	limit time.Duration // of a read; the default is cellLimit

	latest  reading[T]    // guarded by the mu of the Server
	running chan struct{} // closed when the running read has ended; nil without one; guarded by mu
}

// get returns the latest value. If the pause after the latest read is over, get starts a read. It
// waits for the read until ctx ends. The read outlives ctx, because all browsers share the value.
func (c *cell[T]) get(ctx context.Context, s *Server,
	read func(context.Context) (T, error)) reading[T] {
	s.mu.Lock()
	due := c.latest.seq == 0 || s.clock.Now().Mono >= c.latest.due
	if c.running == nil && due && s.ctx.Err() == nil {
		c.running = make(chan struct{})
		s.reads.Go(func() { c.refresh(s, read) })
	}
	running := c.running
	s.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := c.latest
	latest.shown = s.clock.Now().Wall
	return latest
}

func (c *cell[T]) refresh(s *Server, read func(context.Context) (T, error)) {
	ctx, cancel := context.WithTimeout(s.ctx, cmp.Or(c.limit, cellLimit))
	defer cancel()
	begun := s.clock.Now().Mono
	value, err := recovered(ctx, read)
	problem := ""
	if err != nil {
		problem = s.problem(err)
	}
	ended := s.clock.Now()
	took := ended.Mono - begun
	s.mu.Lock()
	defer s.mu.Unlock()
	last := c.latest
	c.latest = reading[T]{value: value, at: ended.Wall, problem: problem,
		since: ended.Wall, seq: last.seq + 1, took: took,
		due: ended.Mono + max(c.keep, (busyShare-1)*took)}
	if problem != "" {
		c.latest.value, c.latest.at = last.value, last.at
	}
	if last.problem != "" {
		c.latest.since = last.since
	}
	close(c.running)
	c.running = nil
}

// recovered calls a read. If the read panics, the error contains the value of the panic.
func recovered[T any](ctx context.Context, read func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reading the server panicked: %v", r)
		}
	}()
	return read(ctx)
}

// A reading is the latest value that was read from the server, the error of the latest attempt, or
// both. Before the first success there is no value, and pages show "Unknown". Pages format every
// reading with [contentOf].
type reading[T any] struct {
	value   T
	at      time.Time // by this machine's clock; zero before the first success
	shown   time.Time // when get returned the reading to a page
	problem string    // the error of the latest attempt; empty after a success
	since   time.Time // the first of the latest consecutive failures
	seq     int       // rises with every attempt
	took    time.Duration
	due     time.Duration // the time of the next attempt, in monotonic time
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
	if c.Known && r.problem != "" {
		c.AsOf = "as of " + r.at.UTC().Format("15:04:05") + " UTC, " +
			words.Age(r.shown.Sub(r.at)) + " ago"
	}
	return c
}

func identity[T any](value T) any { return value }
