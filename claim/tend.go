package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// begin notes a call, unless the queue is closed, and starts the background with the first one.
func (e *engine) begin(note func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	if err := note(); err != nil {
		return err
	}
	if !e.begun {
		e.begun = true
		e.background.Go(e.tend)
		e.background.Go(e.rescue)
		e.background.Go(e.listen)
	}
	return nil
}

// tend looks after the rows of this process: what is due, what earlier holders of its slot have
// left, and what lost replies have left. Two commands an interval, and one when rows are due that
// it has put off.
func (e *engine) tend() {
	next := e.clock.Now().Mono + jittered(e.clock, e.cfg.Tend)
	for e.sleepUntil(next) {
		look := e.tidyDue
		if now := e.clock.Now().Mono; now >= next {
			look, next = e.tendOnce, now+jittered(e.clock, e.cfg.Tend)
		}
		if err := look(e.life); err != nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("tending the queue failed")
		}
	}
}

func (e *engine) tendOnce(ctx context.Context) error {
	if s := e.current(); s != nil && s.err() != nil { // whether somebody claims or not
		e.retire(s)
	}
	e.mu.Lock()
	e.inBatches = false
	old := slices.Collect(maps.Keys(e.retired))
	e.mu.Unlock()
	var errs []error
	for _, s := range old { // their slots are kept as long as their handlers run
		errs = append(errs, e.exorcise(ctx, s))
	}
	if s := e.current(); s != nil && s.err() == nil { // else the next claim begins one
		errs = append(errs, e.tidy(ctx, s), e.exorcise(ctx, s))
	}
	e.payOwed(ctx)
	errs = append(errs, e.checkMarks(ctx))
	return errors.Join(append(errs, e.notify(ctx))...)
}

// tidy makes rows ready whose pause is over or that earlier holders of the slot had.
func (e *engine) tidy(ctx context.Context, s *session) error {
	return e.tidied(e.tidyUp(ctx, s.slot, s.guard, int64(e.cfg.MaxAttempts)))
}

func (e *engine) tidied(n int, err error) error {
	var refused *rows.RefusedError
	if errors.As(err, &refused) { // the others are as they should be
		e.setAside(refused.Rows)
		n, err = 1, nil
	}
	if n > 0 {
		signal(e.woken)
	}
	return err
}

// exorcise gives rows back that are claimed by this process and that nobody in it knows of: the
// reply was lost, or came too late.
func (e *engine) exorcise(ctx context.Context, s *session) error {
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	batches, err := e.store.Batches(ctx, s.slot, s.guard.Session())
	if err != nil {
		return err
	}
	ghosts := s.ghosts(batches)
	if len(ghosts) == 0 {
		return nil
	}
	n, err := e.store.GiveBack(ctx, s.guard.Session(), ghosts)
	if err == nil {
		e.log.Info().Int("rows", n).Msg("rows of lost replies were given back")
	}
	return e.tidied(n, err)
}

// rescue looks after the rows of others, in the process of the queue that holds this lock.
func (e *engine) rescue() {
	for e.life.Err() == nil {
		guard, err := locks.Standby(e.m.Lock(e.prefix+":rescue")).Lock(e.life,
			distlock.Why("watches those who claim rows"))
		if err == nil {
			e.stats.rescues.Store(true)
			e.watch(guard)
			e.stats.rescues.Store(false)
			err = guard.Release()
		}
		if e.life.Err() != nil {
			return
		}
		e.log.Warn().Err(err).Msg("the rescuer's lock was lost")
		if errors.Is(err, distlock.ErrClosed) || !e.rest() {
			return
		}
	}
}

// rest waits for about a Tend. False when the queue is closed.
func (e *engine) rest() bool {
	return clock.Sleep(e.clock, jittered(e.clock, e.cfg.Tend), e.life.Done())
}

// watch tries the slots that own rows. A try of a slot whose holder lives is a look at it, and the
// looks add up to a takeover once it is dead. A slot that is free, or was taken over, has no rows
// of anybody: those of earlier holders are ready again.
func (e *engine) watch(guard *distlock.TryGuard) {
	cfg := e.m.Config()
	every := min(max(e.cfg.Tend, cfg.Ping), cfg.MaxWatchGap/3, cfg.Takeover/10)
	if e.cfg.Lease > 0 {
		every = min(every, e.cfg.Lease/4)
	}
	leases := leases{}
	for guard.Err() == nil {
		err := errors.Join(e.watchOnce(guard.Context()), e.watchLeases(guard.Context(), leases),
			e.purgeDone(guard.Context()))
		if err != nil && guard.Err() == nil && e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("watching those who claim rows failed")
		}
		if !clock.Sleep(e.clock, jittered(e.clock, every), guard.Context().Done()) {
			return
		}
	}
}

func (e *engine) watchOnce(ctx context.Context) error {
	reading, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	slots, err := e.store.Slots(reading)
	if err != nil {
		return err
	}
	odd, err := e.store.Odd(reading)
	e.exclude(odd)
	own := e.current()
	for _, slot := range slots {
		if own != nil && slot == own.slot || !e.mayTry(slot) {
			continue
		}
		err = errors.Join(err, e.trySlot(ctx, slot.Name))
	}
	return err
}

// mayTry reports whether a slot is a lock that this process can judge by. What lies in another
// database of locks has a holder there of whom nothing is known here.
func (e *engine) mayTry(slot rows.Slot) bool {
	problem := ""
	switch {
	case slot.Locks != "" && slot.Locks != e.locks:
		problem = "their locks are in another database: give all processes of a queue one Config.Database"
	case !strings.HasPrefix(slot.Name, prefix):
		problem = "their slot is no lock of a queue"
	default:
		return true
	}
	if e.tellOnce("slot " + slot.Locks + " " + slot.Name) {
		e.log.Warn().Str("slot", slot.Name).Str("locks", slot.Locks).Str("own", e.locks).
			Str("problem", problem).Msg("claimed rows are left alone")
	}
	return false
}

// most is how many attempts the rows of a slot have. How many those of another queue have is not
// known: the process that claims them will tell.
func (e *engine) most(slot string) int64 {
	if at := strings.LastIndexByte(slot, ':'); at < 0 || slot[:at] != e.prefix {
		return math.MaxInt64
	}
	return int64(e.cfg.MaxAttempts)
}

func (e *engine) trySlot(ctx context.Context, slot string) error {
	guard, err := e.try(ctx, slot, "rescues rows")
	if errors.Is(err, distlock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	evidence := guard.TakeoverEvidence()
	n, err := e.tidyUp(context.WithoutCancel(ctx), e.slot(slot), guard, e.most(slot))
	if n > 0 {
		e.log.Info().Str("slot", slot).Int("rows", n).Str("evidence", evidence).Msg("rows were rescued")
	}
	return errors.Join(e.tidied(n, err), guard.Release())
}

// listen hears of rows by a change stream where there is one.
func (e *engine) listen() {
	for {
		err := e.store.Watch(e.life, e.arrivals.hear)
		e.arrivals.ended()
		if e.life.Err() != nil {
			return
		}
		if errors.Is(err, rows.ErrNoStream) {
			e.log.Debug().Err(err).Msg("the queue is polled")
			return
		}
		e.log.Warn().Err(err).Msg("the change stream of the queue ended")
		var denied *distlock.PrivilegeError
		if errors.As(err, &denied) || !e.rest() {
			return
		}
	}
}

// purgeLots is how many thousand rows that are done one round of the rescuer removes at most: so
// the rest of its work is held up for a few seconds at worst.
const purgeLots = 20

// purgeDone removes rows that have been done for longer than Config.KeepDone. Nothing without that;
// else one command, and two for a thousand rows.
func (e *engine) purgeDone(ctx context.Context) error {
	if e.cfg.KeepDone == 0 {
		return nil
	}
	now, err := e.serverNow(ctx)
	if err != nil {
		return err
	}
	before := now.Add(-e.cfg.KeepDone)
	for range purgeLots {
		n, err := e.purgeLot(ctx, before)
		if err != nil {
			return fmt.Errorf("claim: remove rows that are done: %w", err)
		}
		if n == 0 {
			return nil
		}
		e.log.Debug().Int("rows", n).Msg("rows that were done were removed")
	}
	return nil
}

func (e *engine) purgeLot(ctx context.Context, before time.Time) (int, error) {
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	return e.store.Purge(ctx, rows.Done, before)
}
