package claim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// rescue ends the claims of dead processes, wakes retries and removes old done rows. Only the
// process with the rescue lock does this work. The other processes try to acquire that lock from
// time to time.
func (e *engine) rescue() {
	pause := e.rescueEvery()
	for {
		at := e.clock.Now().Mono
		guard, err := e.try(e.prefix+":rescue", "rescues the rows of dead processes")
		switch {
		case err == nil:
			e.rescues.Store(true)
			pause = e.rescueEvery()
			if !e.watch(guard) { // another process may be able to read rows
				pause = 2 * e.tryEvery()
			}
			e.rescues.Store(false)
			err = guard.Release()
		case errors.Is(err, distlock.ErrHeld):
			pause = max(e.tryEvery(), rare*(e.clock.Now().Mono-at))
			err = nil
		}
		if err != nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("the rescue lock was not acquired, or was lost")
		}
		if isClosed(err) ||
			!clock.Sleep(e.clock, jittered(e.clock, max(pause, e.pace.now())), e.life.Done()) {
			return
		}
	}
}

// rescueEvery returns the time between two rounds of the rescue. In each round, the process tries
// to acquire the slots that claimed rows name. After enough rounds, it takes over the slot of a
// dead process.
func (e *engine) rescueEvery() time.Duration {
	return min(max(e.cfg.tend, e.m.Config().Ping), e.tryEvery())
}

// tryEvery returns the time between two tries of the rescue lock.
func (e *engine) tryEvery() time.Duration {
	cfg := e.m.Config()
	return min(cfg.MaxWatchGap/3, cfg.Takeover/10)
}

// watch rescues rows until the lock is lost or the queue closes. It returns false if it has failed
// to read the slots during a whole ping interval.
func (e *engine) watch(guard *distlock.TryGuard) bool {
	ctx, cancel := context.WithCancel(guard.Context())
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	read := e.clock.Now().Mono
	for ctx.Err() == nil && guard.Err() == nil {
		at := e.clock.Now().Mono
		slots, err := sent(e, e.store.Slots)
		if err == nil {
			read = e.clock.Now().Mono
			err = errors.Join(e.rescueOnce(ctx, slots), e.wake(), e.purgeDone(ctx))
		}
		if err != nil && ctx.Err() == nil {
			e.log.Warn().Err(err).Msg("rescuing rows failed")
		}
		now := e.clock.Now().Mono
		if now-read >= e.m.Config().Ping {
			return false
		}
		pause := max(jittered(e.clock, e.rescueEvery()), e.pace.now(), min(now-at, e.limit))
		if !clock.Sleep(e.clock, pause, ctx.Done()) {
			break
		}
	}
	return true
}

// rescueOnce tries to acquire each of the given slots. When it acquires a slot, it ends the claims
// of the slot's earlier holders. It also logs odd rows, and releases the keys that done, dead or
// filtered rows hold.
func (e *engine) rescueOnce(ctx context.Context, slots []rows.Slot) error {
	odd, err := sent(e, e.store.Odd)
	for _, one := range odd {
		if e.logOnce("odd " + rows.Key(one.ID)) {
			e.log.Warn().Err(&one).Msg("a row can never be claimed")
		}
	}
	if e.cfg.Key != "" {
		n, bad := sent(e, e.store.Settle)
		if err = errors.Join(err, bad); n > 0 {
			e.log.Warn().Int("rows", n).Msg("done, dead or filtered rows held keys")
		}
	}
	own := e.current()
	for _, slot := range slots {
		if ctx.Err() != nil || own != nil && slot == own.slot || !e.mayTry(slot) {
			continue
		}
		err = errors.Join(err, e.trySlot(slot.Name))
	}
	return err
}

// mayTry reports whether this process can detect that the holder of a slot is dead. The slot must
// be the lock of a queue, in the lock database of this process.
func (e *engine) mayTry(slot rows.Slot) bool {
	problem := ""
	switch {
	case slot.Locks != "" && slot.Locks != e.locks:
		problem = "their locks are in another database: all processes of a queue need one Config.Database"
	case !strings.HasPrefix(slot.Name, prefix):
		problem = "their slot is not a lock of a queue"
	default:
		return true
	}
	if e.logOnce("slot " + slot.Locks + " " + slot.Name) {
		e.log.Warn().Str("slot", slot.Name).Str("locks", slot.Locks).Str("own", e.locks).
			Str("problem", problem).Msg("claimed rows are left alone")
	}
	return false
}

func (e *engine) trySlot(slot string) error {
	guard, err := e.try(slot, "rescues rows")
	if errors.Is(err, distlock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(e.rescueSlot(guard), guard.Release())
}

// rescueSlot ends the claims of a slot's earlier holders.
func (e *engine) rescueSlot(guard *distlock.TryGuard) error {
	for {
		found, err := e.claimedBy(e.slot(guard.Name()))
		if err = errors.Join(err, guard.Err()); err != nil {
			return err
		}
		all := len(found) < rows.MostClaimed
		left := slices.DeleteFunc(found, func(row rows.Row) bool {
			return row.Mark.SlotFence >= guard.Fence()
		})
		if n, err := e.endLeft(guard, left); err != nil || n == 0 || all {
			return err
		}
	}
}

func (e *engine) purgeDone(ctx context.Context) error {
	if e.cfg.KeepDone == 0 {
		return nil
	}
	now, err := e.serverNow()
	if err != nil {
		return err
	}
	const lots = 20 // of a thousand rows, in one round
	for range lots {
		n, err := sent(e, func(c context.Context) (int, error) {
			return e.store.Purge(c, rows.Done, now.Add(-e.cfg.KeepDone))
		})
		if err != nil || n == 0 || ctx.Err() != nil {
			return err
		}
	}
	return nil
}
