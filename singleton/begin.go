package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
)

// ErrNotDue is returned by [BeginSlot] and [LatestSlot] if no slot may begin. Either the latest
// slot has already begun, or the settings stop the schedule.
var ErrNotDue = errors.New("singleton: no slot is due")

// beginTries is the number of tries of BeginSlot when a store does not answer.
const beginTries = 3

// LatestSlot returns the latest slot that is later than last and not later than now. If last is
// zero, every slot counts as later. Errors: [ErrNotDue]; [ErrBadSchedule].
func LatestSlot(s Schedule, last, now time.Time) (time.Time, error) {
	if s == nil {
		return time.Time{}, bad("the Schedule is nil")
	}
	for back := time.Second; last.IsZero() && back < longest; back *= 2 {
		if first, err := next(s, now.Add(-back)); err == nil && !first.After(now) {
			last = now.Add(-back)
		}
	}
	if last.IsZero() {
		return last, fmt.Errorf("%w: none in ten years", ErrNotDue)
	}
	slots, _, err := due(s, last, now, 1)
	if errors.Is(err, ErrNeverFires) || err == nil && len(slots) == 0 {
		return time.Time{}, fmt.Errorf("%w: that of %s was begun", ErrNotDue,
			last.Format(time.RFC3339Nano))
	}
	if err != nil {
		return time.Time{}, err
	}
	return slots[0], nil
}

// A BegunSlot is a slot that [BeginSlot] has started. Call End once.
type BegunSlot struct {
	Time time.Time // the time of the slot, in UTC

	r    *runner
	t    *tenure
	over func(error) // reports the slot's end
}

// BeginSlot begins a slot under guard, which the caller has just acquired from m. It is for
// programs with a scheduler; other programs call [RunSlots]. The record has the name of the guard.
// No slot begins twice.
//
// The function choose returns the slot to begin, as [LatestSlot] does. It is called with the time
// of the latest slot, or zero if there was none, and with the server's clock. It must return a slot
// that is later than the latest one.
//
// BeginSlot returns when ctx ends. Errors: the error of choose; [ErrNotDue]; the errors of
// [RunSlots]. BeginSlot tries three times if the store does not answer the write that begins the
// slot. After a failure of BeginSlot, the record may name a slot as running although no process
// runs the slot. Each try sends three commands.
func BeginSlot(ctx context.Context, m *distlock.Manager, guard *distlock.TryGuard, store Store,
	choose func(last, now time.Time) (time.Time, error)) (*BegunSlot, error) {
	if guard == nil || choose == nil {
		return nil, bad("the guard or the function is nil")
	}
	r, t := &runner{store: store, name: guard.Name(), kind: KindSlots}, &tenure{guard: guard}
	if err := r.check(ctx, m); err != nil {
		return nil, err
	}
	within, cancel := context.WithCancelCause(guard.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	var slot time.Time
	var err error
	for range beginTries {
		if slot, err = r.begin(within, t, slot, choose); err == nil {
			if err = guard.Err(); err != nil {
				break // another holder may run the next slot
			}
			return &BegunSlot{Time: slot, r: r, t: t, over: r.beginRound()}, nil
		}
		if slot.IsZero() {
			break // the slot was not tried
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return nil, fmt.Errorf("singleton: slot of %q: %w", r.name, err)
}

// begin makes one try to begin a slot, and returns the slot. If it returns an error and zero,
// BeginSlot must not try again. The argument tried is the slot of an earlier try, or zero.
func (r *runner) begin(ctx context.Context, t *tenure, tried time.Time,
	choose func(last, now time.Time) (time.Time, error)) (time.Time, error) {
	if err := r.enter(ctx, t); err != nil {
		return tried, err
	}
	rec := t.rec
	if rec.runFence == t.guard.Fence() && !tried.IsZero() && rec.Slot.Equal(tried) {
		return tried, nil // an earlier try was applied, and its reply was lost
	}
	if ok, err := r.may(ctx, t); err != nil {
		return time.Time{}, err
	} else if !ok {
		return time.Time{}, fmt.Errorf("%w: %s", ErrNotDue, r.stopped)
	}
	r.noteAhead(t)
	slot, err := choose(rec.Slot, r.now(t))
	if err != nil {
		return time.Time{}, err
	}
	if slot = slot.Truncate(time.Millisecond); !slot.After(rec.Slot) {
		return time.Time{}, fmt.Errorf("%w: that of %s was begun", ErrNotDue,
			rec.Slot.Format(time.RFC3339Nano))
	}
	if rec.State == Running {
		r.log.Warn().Time("slot", rec.Slot).Int64("fence", rec.runFence).Msg("slot was interrupted")
	}
	if err := t.guard.Err(); err != nil {
		return time.Time{}, err
	}
	return slot.UTC(), r.changeWithin(ctx, t,
		Change{Rev: rec.rev, Dates: []string{"begun"}, Set: r.begun(t, slot, 1, 0)})
}

// begun returns the fields that record the beginning of a slot.
func (r *runner) begun(t *tenure, slot time.Time, attempt, missed int) bson.D {
	return bson.D{
		e("state", Running), e("slot", slot), e("attempt", int64(attempt)),
		e("runFence", t.guard.Fence()), e("missed", t.rec.Missed+int64(missed)),
		e("answered", t.rec.asks), r.beginning(t, slot, attempt),
	}
}

// End records the end of the slot, and its error if err is not nil. It does not release the guard.
// If another holder has started a slot, End does not change the record. It sends one command.
func (b *BegunSlot) End(err error) error {
	b.over(err)
	took := b.r.clock.Now().Mono - b.t.read.Mono
	return b.r.change(b.t, ending(b.t.rec, err, time.Time{}, took), "ended")
}
