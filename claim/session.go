package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// A session is the time for which a process holds a slot. All rows that it claims belong to it.
type session struct {
	guard *distlock.TryGuard
	slot  rows.Slot

	mu      sync.Mutex            // guards the rest
	batches map[bson.ObjectID]int // rows that are claimed, by batch; -1 while it is being claimed
	rows    int
	retired bool // no more rows are claimed under it
}

func (s *session) err() error { return s.guard.Err() }

// begin announces a batch before it is claimed, so that nobody takes it for a ghost.
func (s *session) begin(at time.Time, lease time.Duration) rows.Claim {
	c := rows.Claim{Locks: s.slot.Locks, Slot: s.slot.Name, SlotFence: s.guard.Fence(),
		Session: s.guard.Session(), Batch: bson.NewObjectID(), At: at, Lease: lease}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[c.Batch] = -1
	s.rows++
	return c
}

// got says how many rows the batch has. It reports whether the session is over.
func (s *session) got(batch bson.ObjectID, n int) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[batch] = n
	s.rows += n - 1
	return s.left(batch)
}

// gone says that a row of a batch is claimed no more. It reports whether the session is over.
func (s *session) gone(batch bson.ObjectID) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[batch]--
	s.rows--
	return s.left(batch)
}

func (s *session) left(batch bson.ObjectID) (over bool) {
	if s.batches[batch] == 0 {
		delete(s.batches, batch)
	}
	return s.retired && s.rows == 0
}

// retire ends the claiming. It reports whether it did, and whether the session is over.
func (s *session) retire() (first, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, s.retired = !s.retired, true
	return first, s.rows == 0
}

// ghosts are those of the batches that nobody here knows.
func (s *session) ghosts(batches []bson.ObjectID) (unknown []bson.ObjectID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, batch := range batches {
		if _, known := s.batches[batch]; !known {
			unknown = append(unknown, batch)
		}
	}
	return unknown
}

// session returns the session under which rows are claimed, and begins one when there is none, or
// the last one is lost.
func (e *engine) session(ctx context.Context) (*session, error) {
	select {
	case e.entering <- struct{}{}:
		defer func() { <-e.entering }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := e.current(); s != nil {
		if s.err() == nil {
			return s, nil
		}
		e.retire(s)
	}
	if e.life.Err() != nil {
		return nil, ErrClosed
	}
	guard, slot, err := e.enter(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{guard: guard, slot: e.slot(slot), batches: map[bson.ObjectID]int{}}
	e.log.Info().Str("slot", slot).Int64("fence", guard.Fence()).Msg("slot taken")
	e.mu.Lock()
	e.now = s
	e.mu.Unlock()
	if err := e.tidy(ctx, s); err != nil { // the background does it again
		e.log.Warn().Err(err).Msg("looking for rows of earlier sessions failed")
	}
	return s, nil
}

// slot is the lock of this name in the process's own database.
func (e *engine) slot(name string) rows.Slot { return rows.Slot{Locks: e.locks, Name: name} }

// The slots are tried at random among the first few, and among more when those are held: so few
// processes use few names, and a hundred that start at once are not in each other's way.
const (
	firstSlots = 8
	mostSlots  = 8192
	triesEach  = 4
)

// enter takes a slot that is free.
func (e *engine) enter(ctx context.Context) (*distlock.TryGuard, string, error) {
	for among := firstSlots; among <= mostSlots; among *= 2 {
		for range triesEach {
			name := fmt.Sprintf("%s:%d", e.prefix, upTo(e.clock, among-1))
			guard, err := e.try(ctx, name, e.cfg.reason())
			if err == nil {
				return guard, name, nil
			}
			if !errors.Is(err, distlock.ErrHeld) && !errors.Is(err, distlock.ErrMalformed) {
				return nil, "", fmt.Errorf("claim: take a slot: %w", err)
			}
		}
	}
	return nil, "", ErrNoSlot
}

// try tries a lock until ctx ends. The guard outlives ctx.
func (e *engine) try(ctx context.Context, name, why string) (*distlock.TryGuard, error) {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	guard, err := e.m.Lock(name).TryLock(life, distlock.Why(why))
	if ctx.Err() != nil || !stop() {
		if err == nil { // the guard's context ends with its life
			e.retire(&session{guard: guard, slot: e.slot(name)})
		}
		end(nil)
		return nil, context.Cause(ctx)
	}
	return guard, err
}

// retire ends a session as soon as none of its rows is worked on any more. Until then the slot is
// kept, lost or not: a handler that does not mind its context is not given company by our hand.
func (e *engine) retire(s *session) {
	e.mu.Lock()
	if e.now == s {
		e.now = nil
	}
	first, over := s.retire()
	if first {
		e.retired[s] = struct{}{}
	}
	e.mu.Unlock()
	if err := s.err(); first && err != nil {
		e.log.Warn().Err(err).Str("slot", s.slot.Name).Msg("slot lost")
	}
	if first && over {
		e.leave(s)
	}
}

// leave releases the slot of a session that is over. Close does so itself.
func (e *engine) leave(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	delete(e.retired, s)
	e.background.Go(func() { e.release(s) })
}

func (e *engine) release(s *session) {
	if err := s.guard.Release(); err != nil && !errors.Is(err, distlock.ErrLockLost) {
		e.log.Warn().Err(err).Str("slot", s.slot.Name).Msg("releasing a slot failed")
	}
}

func (e *engine) current() *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}
