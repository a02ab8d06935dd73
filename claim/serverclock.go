package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// A serverClock is what one process knows of the clock of the collection's server. Pauses and due
// times are counted by it, in all processes, so that their own clocks do not matter. Safe for
// concurrent use.
type serverClock struct {
	own    clock.Clock
	read   func(context.Context) (time.Time, error) // one command
	asking chan struct{}                            // one element while it is read
	jumped func()                                   // it was set by more than a second; may be nil

	mu      sync.Mutex // guards the rest
	known   bool
	said    time.Time
	replied time.Duration // when the reply was there, by the own monotonic clock
}

// clockAge is how old a reading may be: a step of the server's clock, or the clock of a new
// primary, is noticed within that time and a Tend.
const clockAge = time.Minute

// now returns a lower bound of the server's time: what it said before its last reply, and the time
// since that reply. It is early by the time that the reply took, and what is counted by it late by
// as much. One command when the last reply is older than clockAge.
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
	if err != nil {
		return time.Time{}, fmt.Errorf("read the server's clock: %w", err)
	}
	if said.IsZero() {
		return time.Time{}, errors.New("the server's clock tells no time")
	}
	was, _ := s.last()
	s.mu.Lock()
	s.known, s.said, s.replied = true, said, s.own.Now().Mono
	s.mu.Unlock()
	now, _ := s.last()
	if s.jumped != nil && now.Sub(was).Abs() > time.Second {
		s.jumped()
	}
	return now, nil
}

// last returns the time by the last reply, and how old that is. No I/O.
func (s *serverClock) last() (now time.Time, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		return time.Time{}, clockAge + 1
	}
	age = s.own.Now().Mono - s.replied
	return s.said.Add(age), age
}

// serverNow is a lower bound of the server's time, see [serverClock.now].
func (e *engine) serverNow(ctx context.Context) (time.Time, error) {
	ctx, done := e.command(ctx)
	defer done()
	now, err := e.server.now(ctx)
	if err != nil {
		err = fmt.Errorf("claim: %w", err)
	}
	return now, err
}

// ask says which rows are wanted now, and what was known before. It reads the server's clock only
// for rows that are due at a time.
func (e *engine) ask(ctx context.Context) (*rows.Ask, question, error) {
	asked, ask := e.arrivals.asks(), &rows.Ask{Without: e.without()}
	var err error
	if e.cfg.Due != "" {
		ask.Due, err = e.serverNow(ctx)
	}
	if err == nil && e.cfg.Key != "" {
		err = e.inChains(ctx, ask, &asked)
	}
	asked.due, asked.held, asked.vain = ask.Due, len(ask.Held)+len(ask.Behind) > 0, len(ask.Behind) > 0
	if err != nil {
		e.arrivals.answered(asked, nil, false)
	}
	return ask, asked, err
}
