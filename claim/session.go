package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// A session is the time for which a process holds a slot. Every claim belongs to a session. The
// mutex of the engine guards all fields except guard.
type session struct {
	guard *distlock.TryGuard

	claims map[bson.ObjectID]*claimed // by batch; nil: the claim waits for its reply
	unsure bool                       // claims of lost replies must be given back first
	doubt  int                        // rounds of tend that still search for such claims
}

// doubts is the number of rounds of tend that search for a claim whose reply was lost. The server
// may carry out such a claim late.
const doubts = 12

func (e *engine) finished(c *claimed) {
	e.mu.Lock()
	delete(c.s.claims, c.row.Mark.Batch)
	e.leave(c.s)
	e.mu.Unlock()
	if e.arrivals.isWaited() {
		signal(e.woken)
	}
}

// leave releases the slot of an earlier session in the background if the session has no claims.
// During Close it does nothing, because Close releases the slots. The caller holds e.mu.
func (e *engine) leave(s *session) {
	if s != e.now && len(s.claims) == 0 && e.closing == nil {
		e.open = slices.DeleteFunc(e.open, func(one *session) bool { return one == s })
		e.background.Go(func() { e.release(s) })
	}
}

// flying returns the claims whose handlers have not begun, or whose ends are not recorded.
func (e *engine) flying() (all []*claimed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.open {
		for _, c := range s.claims {
			if c != nil {
				all = append(all, c)
			}
		}
	}
	return all
}

// session returns the session for new claims. It takes a slot if there is no session.
func (e *engine) session() (*session, error) {
	select {
	case e.entering <- struct{}{}:
		defer func() { <-e.entering }()
	case <-e.life.Done():
		return nil, ErrClosed
	}
	if s := e.current(); s != nil {
		if s.guard.Err() == nil {
			return s, nil
		}
		e.retire(s)
	}
	if e.life.Err() != nil {
		return nil, ErrClosed
	}
	guard, err := e.enter()
	if err != nil {
		return nil, err
	}
	s := &session{guard: guard, claims: map[bson.ObjectID]*claimed{},
		unsure: true} // earlier holders of this slot may have left rows
	e.log.Info().Str("slot", guard.Name()).Int64("fence", guard.Fence()).Msg("slot taken")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.open = s, append(e.open, s)
	return s, nil
}

// enter acquires a slot with a random number, so that processes that start together rarely try the
// same slot. It first tries numbers below 256, so that there are few lock documents. If those slots
// are held, it tries larger numbers.
func (e *engine) enter() (*distlock.TryGuard, error) {
	const first, most, tries = 256, 65536, 4
	for among := first; among <= most; among *= 4 {
		for range tries {
			name := fmt.Sprintf("%s:%d", e.prefix, upTo(e.clock, among-1))
			guard, err := e.try(name, e.cfg.reason())
			if err == nil {
				return guard, nil
			}
			if !errors.Is(err, distlock.ErrHeld) && !errors.Is(err, distlock.ErrMalformed) {
				return nil, fmt.Errorf("claim: take a slot: %w", err)
			}
		}
	}
	return nil, ErrNoSlot
}

// try tries to acquire a lock. The guard does not depend on the context of a caller.
func (e *engine) try(name, why string) (*distlock.TryGuard, error) {
	at := e.clock.Now().Mono
	guard, err := e.m.Lock(name).TryLock(e.base, distlock.Why(why))
	if !errors.Is(err, distlock.ErrHeld) {
		e.pace.note(at, err)
	}
	return guard, err
}

// If the slot of the current session is lost, retire stops further claims in the session. The
// session stays open until its last claim has ended.
func (e *engine) retire(s *session) {
	e.mu.Lock()
	current := e.now == s
	if current {
		e.now = nil
		e.leave(s)
	}
	e.mu.Unlock()
	if current {
		e.log.Warn().Err(s.guard.Err()).Str("slot", s.guard.Name()).Msg("slot lost")
	}
}

func (e *engine) release(s *session) {
	if err := s.guard.Release(); err != nil && !errors.Is(err, distlock.ErrLockLost) {
		e.log.Warn().Err(err).Str("slot", s.guard.Name()).Msg("releasing a slot failed")
	}
}

func (e *engine) current() *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (e *engine) sessions() []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.open)
}

func (e *engine) claim() (*claimed, error) {
	s, err := e.session()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	unsure := s.unsure
	e.mu.Unlock()
	if unsure {
		if err := e.tendClaims(s); err != nil {
			return nil, err
		}
	}
	var busy []bson.RawValue
	const tries = 100
	for range tries {
		q, err := e.ask()
		if err != nil {
			return nil, err
		}
		q.Held = append(q.Held, busy...)
		c, err := e.claimRow(s, q.Ask)
		if err == nil {
			e.arrivals.answered(q, c)
		}
		if isRefused(err) {
			if c, err = e.findRefused(s, q.Ask); c == nil && err == nil {
				continue
			}
		}
		held, isHeld := errors.AsType[*rows.HeldError](err)
		if !isHeld {
			return c, err
		}
		key := held.Key // another process just took the key, or the key is null
		if key.IsZero() {
			key.Type = bson.TypeNull
		}
		busy = append(busy, key)
	}
	return nil, errors.New("claim: the server refused many claims, or more than 10,000 keys are held")
}

// claimRow sends one claim. It returns nil if no row is ready.
func (e *engine) claimRow(s *session, ask rows.Ask) (*claimed, error) {
	c := rows.Claim{Locks: e.locks, Slot: s.guard.Name(), SlotFence: s.guard.Fence(),
		Session: s.guard.Session(), Batch: bson.NewObjectID(), At: e.clock.Now().Wall}
	e.mu.Lock()
	s.claims[c.Batch] = nil
	e.mu.Unlock()
	row, err := sent(e, func(ctx context.Context) (*rows.Row, error) {
		return e.store.Claim(ctx, c, ask)
	})
	if err == nil && row != nil {
		// If the slot is lost, no handler may begin. Another process rescues the row.
		err = s.guard.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && !answered(err) {
		s.unsure, s.doubt = true, doubts
	}
	if err != nil || row == nil {
		delete(s.claims, c.Batch)
		e.leave(s)
		return nil, err
	}
	one := &claimed{row: *row, s: s, since: e.clock.Now().Mono}
	s.claims[c.Batch] = one
	return one, nil
}

// ask returns the conditions for the next claim. If Config.Due is set, it reads the server's clock.
// If Config.Key is set, it reads the held keys.
func (e *engine) ask() (q question, err error) {
	q = e.arrivals.asks()
	q.Without = e.without()
	if e.cfg.Due != "" {
		q.Due, err = e.serverNow()
	}
	if err == nil && e.cfg.Key != "" {
		q.Held, err = sent(e, e.store.Held)
	}
	if err != nil {
		err = fmt.Errorf("claim: %w", err)
	}
	return q, err
}

// An aside is a row that the server refuses to change. This process does not claim the row until a
// given time.
type aside struct {
	id    bson.RawValue
	until time.Duration // monotonic
	pause time.Duration
}

// A process claims a refused row again after a pause. The pause doubles from refusedPause to
// refusedMost. A process sets at most mostAsides rows aside.
const (
	refusedPause = time.Minute
	refusedMost  = time.Hour
	mostAsides   = 1000
)

// findRefused finds the row that the server has just refused to change, and sets the row aside. If
// the server accepts the claim now, findRefused returns the claimed row.
func (e *engine) findRefused(s *session, ask rows.Ask) (*claimed, error) {
	id, err := sent(e, func(ctx context.Context) (bson.RawValue, error) {
		return e.store.First(ctx, ask)
	})
	if err != nil || id.IsZero() {
		return nil, err
	}
	ask.Only = id
	c, err := e.claimRow(s, ask)
	if !isRefused(err) {
		return c, err
	}
	if !e.setAside(id) {
		return nil, fmt.Errorf("claim: more than %d rows are refused: %w", mostAsides, err)
	}
	if e.logOnce("refused " + rows.Key(id)) {
		e.log.Error().Err(err).Str("row", rows.Text(id)).Msg("a row is set aside")
	}
	return nil, nil
}

// setAside sets a row aside. It returns false if there are too many of them.
func (e *engine) setAside(id bson.RawValue) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := rows.Key(id)
	if len(e.asides) >= mostAsides {
		return false
	}
	pause := min(max(2*e.asides[key].pause, refusedPause), refusedMost)
	e.asides[key] = aside{id, e.clock.Now().Mono + pause, pause}
	return true
}

// The result contains the _ids of the rows that are set aside now.
func (e *engine) without() (ids []bson.RawValue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Mono
	for key, one := range e.asides {
		switch {
		case one.until > now:
			ids = append(ids, one.id)
		case now-one.until > one.pause: // the row was claimed, or is gone
			delete(e.asides, key)
		}
	}
	return ids
}

// refused returns the number of rows that the server does not let this process claim or end.
func (e *engine) refused() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.asides)) + e.owed.Load()
}
