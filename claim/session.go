package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

func (e *engine) finished(c *claimed) {
	e.mu.Lock()
	delete(e.claims, c.row.Mark.Batch)
	e.leave(c.guard)
	e.mu.Unlock()
}

// leave releases a slot in the background unless it is the current slot or has claims. The caller
// holds e.mu.
func (e *engine) leave(guard *distlock.TryGuard) {
	if guard == e.slot {
		return
	}
	for _, c := range e.claims {
		if c.guard == guard {
			return
		}
	}
	e.background.Go(func() { e.release(guard) })
}

// flying returns the claims whose handlers have not begun, or whose ends are not recorded.
func (e *engine) flying() (all []*claimed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.claims {
		if !c.row.ID.IsZero() {
			all = append(all, c)
		}
	}
	return all
}

// hold returns the guard of the slot for new claims. It takes a slot if the process has none.
func (e *engine) hold() (*distlock.TryGuard, error) {
	select {
	case e.entering <- struct{}{}:
		defer func() { <-e.entering }()
	case <-e.life.Done():
		return nil, ErrClosed
	}
	if guard := e.current(); guard != nil {
		if guard.Err() == nil {
			return guard, nil
		}
		e.retire(guard)
	}
	if e.life.Err() != nil {
		return nil, ErrClosed
	}
	guard, err := e.enter()
	if err != nil {
		return nil, err
	}
	e.log.Info().Str("slot", guard.Name()).Int64("fence", guard.Fence()).Msg("slot taken")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slot, e.unsure = guard, true // earlier holders of this slot may have left rows
	return guard, nil
}

// enter acquires a slot with a random number, so that processes that start together rarely try the
// same slot. It first tries a number below 256, so that there are few lock documents. After a slot
// that is held, it doubles the range of numbers.
func (e *engine) enter() (*distlock.TryGuard, error) {
	const first, most = 256, 65536
	for among := first; among <= most; among *= 2 {
		guard, err := e.try(fmt.Sprintf("%s:%d", e.prefix, upTo(e.clock, among-1)), e.cfg.reason())
		if err == nil {
			return guard, nil
		}
		if !errors.Is(err, distlock.ErrHeld) && !errors.Is(err, distlock.ErrMalformed) {
			return nil, fmt.Errorf("claim: take a slot: %w", err)
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

// retire ends the use of a lost slot for new claims. The slot is released when its last claim has
// ended.
func (e *engine) retire(guard *distlock.TryGuard) {
	e.mu.Lock()
	current := e.slot == guard
	if current {
		e.slot = nil
		e.leave(guard)
	}
	e.mu.Unlock()
	if current {
		e.log.Warn().Err(guard.Err()).Str("slot", guard.Name()).Msg("slot lost")
	}
}

func (e *engine) release(guard *distlock.TryGuard) {
	if err := guard.Release(); err != nil && !errors.Is(err, distlock.ErrLockLost) {
		e.log.Warn().Err(err).Str("slot", guard.Name()).Msg("releasing a slot failed")
	}
}

// current returns the guard of the current slot, or nil without a slot.
func (e *engine) current() *distlock.TryGuard {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.slot
}

func (e *engine) claim(why reason) (*claimed, error) {
	guard, err := e.hold()
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	unsure := e.unsure
	e.mu.Unlock()
	if unsure {
		if err := e.tendClaims(guard); err != nil {
			return nil, err
		}
	}
	var busy []bson.RawValue
	const tries = 100
	for range tries {
		at := e.clock.Now().Mono
		ask, err := e.ask()
		if err != nil {
			return nil, err
		}
		ask.Held = append(ask.Held, busy...)
		c, err := e.claimRow(guard, ask)
		if err == nil {
			e.arrivals.answered(why, at, ask, c)
		}
		if isRefused(err) {
			if err = e.setAside(ask, err); err == nil {
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
func (e *engine) claimRow(guard *distlock.TryGuard, ask rows.Ask) (*claimed, error) {
	c := rows.Claim{Locks: e.locks, Slot: guard.Name(), SlotFence: guard.Fence(),
		Session: guard.Session(), Batch: bson.NewObjectID(), At: e.clock.Now().Wall}
	e.mu.Lock()
	e.claims[c.Batch] = &claimed{guard: guard}
	e.mu.Unlock()
	row, err := sent(e, func(ctx context.Context) (*rows.Row, error) {
		return e.store.Claim(ctx, c, ask)
	})
	if err == nil && row != nil {
		// If the slot is lost, no handler may begin. Another process rescues the row.
		err = guard.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && !answered(err) {
		e.unsure = true
	}
	if err != nil || row == nil {
		delete(e.claims, c.Batch)
		e.leave(guard)
		return nil, err
	}
	one := &claimed{row: *row, guard: guard, since: e.clock.Now().Mono}
	e.claims[c.Batch] = one
	return one, nil
}

// ask returns the conditions for the next claim. If Config.Due is set, it reads the server's clock.
// If Config.Key is set, it reads the held keys.
func (e *engine) ask() (ask rows.Ask, err error) {
	ask.Without = e.without()
	if e.cfg.Due != "" {
		ask.Due, err = e.serverNow()
	}
	if err == nil && e.cfg.Key != "" {
		ask.Held, err = sent(e, e.store.Held)
	}
	if err != nil {
		err = fmt.Errorf("claim: %w", err)
	}
	return ask, err
}

// An aside is a row that the server refuses to change. This process does not claim the row until a
// given time.
type aside struct {
	id    bson.RawValue
	until time.Duration // monotonic
}

// A process claims a refused row again after refusedPause. It sets at most mostAsides rows aside.
const (
	refusedPause = 10 * time.Minute
	mostAsides   = 1000
)

// setAside sets the first ready row aside, because the server has just refused to change it. If
// another row has become the first one meanwhile, that row is set aside.
func (e *engine) setAside(ask rows.Ask, why error) error {
	id, err := sent(e, func(ctx context.Context) (bson.RawValue, error) {
		return e.store.First(ctx, ask)
	})
	if err != nil || id.IsZero() {
		return err
	}
	if e.logOnce("refused " + rows.Key(id)) {
		e.log.Error().Err(why).Str("row", rows.Text(id)).Msg("a row is set aside")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asides) >= mostAsides {
		return fmt.Errorf("claim: more than %d rows are refused: %w", mostAsides, why)
	}
	e.asides[rows.Key(id)] = aside{id, e.clock.Now().Mono + refusedPause}
	return nil
}

// without returns the _ids of the rows that are set aside now.
func (e *engine) without() (ids []bson.RawValue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, one := range e.asides {
		if one.until <= e.clock.Now().Mono {
			delete(e.asides, key)
			continue
		}
		ids = append(ids, one.id)
	}
	return ids
}

// refused returns the number of rows that the server does not let this process claim or end.
func (e *engine) refused() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.asides)) + e.owed.Load()
}
