package singleton

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
)

// ErrNotDue is returned by [BeginSlot] and [LatestSlot] if no slot may begin. Either no slot has
// become due after the latest one, or the settings stop the schedule.
var ErrNotDue = errors.New("singleton: no slot is due")

// beginTries is the maximum number of tries in one call of BeginSlot.
const beginTries = 3

// LatestSlot returns the latest slot after the time last, up to and including the time now. If last
// is zero, LatestSlot searches the period of eight years that ends now. If there is no slot, the
// error is [ErrNotDue]. Other errors: [ErrBadSchedule]; [ErrBadArgument] if s is nil.
func LatestSlot(s Schedule, last, now time.Time) (time.Time, error) {
	if s == nil {
		return time.Time{}, bad("the Schedule is nil")
	}
	if last.IsZero() {
		last = now.AddDate(-8, 0, 0)
	}
	slots, _, err := due(s, last, now, 1)
	if errors.Is(err, ErrNeverFires) || err == nil && len(slots) == 0 {
		return time.Time{}, fmt.Errorf("%w: the schedule has no slot from %s to now", ErrNotDue,
			last.Format(time.RFC3339Nano))
	}
	if err != nil {
		return time.Time{}, err
	}
	return slots[0], nil
}

// A BegunSlot is a slot that [BeginSlot] has begun. The caller must call End once.
type BegunSlot struct {
	Time time.Time // the time of the slot, in UTC

	r    *runner
	t    *tenure
	over func(error) // reports the slot's end to the metrics
}

// BeginSlot begins a slot under the lock of guard. It is for programs with their own scheduler.
// Other programs call [RunSlots]. The caller must have acquired guard from m immediately before the
// call. The name of the lock is also the name of the record. No slot begins twice.
//
// The function choose selects a slot after the latest one, for example with [LatestSlot]. Its
// arguments are the time of the latest slot, zero if there is none, and the server's time.
//
// BeginSlot returns when ctx ends. If the store does not answer the write that begins the slot,
// BeginSlot makes up to three tries. Each try sends three commands, or four if there is no record
// yet. If BeginSlot returns an error, the record may show the slot as running although no process
// runs it.
//
// Errors: the error of the function choose; [ErrNotDue]; the errors of [RunSlots]; the error of
// guard if the lock is lost.
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
				break // the lock is lost: another holder may run the next slot
			}
			return &BegunSlot{Time: slot, r: r, t: t, over: r.beginRound()}, nil
		}
		if slot.IsZero() {
			break // no slot was written
		}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return nil, fmt.Errorf("singleton: slot of %q: %w", r.name, err)
}

// begin makes one try to begin a slot. The argument tried is the slot of an earlier try, or zero.
// If begin returns an error with a slot, the write of the slot may have been applied, and BeginSlot
// tries again. If begin returns an error with the zero time, BeginSlot returns the error.
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
		return time.Time{}, fmt.Errorf("%w: the slot of %s has already begun", ErrNotDue,
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

// End records the end of the slot. If err is not nil, the slot has failed with this error. End does
// not release the guard. If another holder has written its fence into the record, End returns
// [ErrStale] and changes nothing. It sends one command.
func (b *BegunSlot) End(err error) error {
	b.over(err)
	took := b.r.clock.Now().Mono - b.t.read.Mono
	return b.r.change(b.t, ending(b.t.rec, err, time.Time{}, took), "ended")
}
