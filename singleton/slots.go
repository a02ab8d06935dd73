package singleton

import (
	"cmp"
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
)

// Missed is a rule that determines which missed slots run. A slot is missed if it does not begin at
// its time, for example because no process runs or an earlier slot takes too long.
type Missed int

// The values of Missed.
const (
	// RunOnce runs only the latest missed slot, however old it is.
	RunOnce Missed = iota
	// Skip runs only the latest missed slot, and only if the slot is late by at most Grace.
	Skip
	// RunAll runs the missed slots, the oldest first. If more than MostMissed slots were missed, it
	// runs only the latest MostMissed slots.
	RunAll
)

// A Slot is one time of a schedule. It is the argument of Slots.Do.
type Slot struct {
	// Time is the time in the schedule, not the time at which the slot runs.
	Time time.Time
	// Attempt is the number of this attempt, 1 for the first. It is larger than 1 only with
	// Slots.Rerun.
	Attempt int
	// Missed is the number of slots that were missed between the latest recorded slot and this slot.
	// It is at most 10,000.
	Missed int
	// Guard is the guard of the lock. Pass its fence to the resources that the slot writes to.
	Guard *distlock.TryGuard
}

// Slots describes a function that runs once for each slot of a schedule, in one of several
// processes. All these processes must have Slots with the same name. If an optional field is zero,
// its default applies.
type Slots struct {
	// Name is the name of the lock, and the _id of the settings document and the record. Required.
	Name string
	// Store is the store of the settings and the record. The default is a store in the database of the
	// locks. RunNow requires a Store.
	Store Store
	// Schedule computes the times of the slots. It must be the same in all processes. Required.
	Schedule Schedule
	// Zone is the time zone of the argument of Schedule.Next, and of the active window in the
	// settings. The default is UTC, so that all processes use the same zone.
	Zone *time.Location
	// Do runs a slot. The rules of Loop.Do apply. Required.
	Do func(ctx context.Context, slot Slot) error
	// Missed is the rule for missed slots. Default RunOnce.
	Missed Missed
	// Grace is the longest delay with which a slot still runs if Missed is Skip. Default 1 min.
	Grace time.Duration
	// MostMissed is the maximum number of missed slots that RunAll runs, 1 to 10,000. Default 100.
	MostMissed int
	// Rerun makes a slot run again if its process died, up to MaxAttempts attempts. Without Rerun,
	// or after the last attempt, the slot is recorded as Interrupted.
	Rerun bool
	// MaxAttempts is the maximum number of attempts of a slot with Rerun. Default 5.
	MaxAttempts int
	// Drain is the time from the end of RunSlots' context to the end of the slot's context. The
	// default is 30 s.
	Drain time.Duration
}

// RunSlots runs the slots of a schedule until ctx ends. One process holds the lock, also between
// slots, as with [Run].
//
// Without Rerun, no slot begins twice, even if the lock fails. The server's clock, in a replica set
// that of the primary, determines when a slot is due. If it steps back, slots are late, and no slot
// is repeated. If it steps ahead, slots are early, and none begins until it reaches the time of the
// latest slot. If that time is more than a minute ahead, RunSlots logs a warning, and
// [ForgetFuture] repairs the record.
//
// If a process dies in a slot, or is cut off until another process evicts it, the next holder
// records the slot as Interrupted, although its work may be complete. With Rerun, the next holder
// runs the slot again under a larger fence. If a slot returns an error or panics, it is recorded as
// Failed and does not run again.
//
// A new or changed schedule does not run slots that were due before its first run. The schedule
// determines the effect of daylight saving. For example, robfig/cron has no slots in an hour that
// is skipped, and each slot twice in an hour that is repeated.
//
// A slot that is due while the settings stop the schedule is missed. RunSlots uses the store and
// reads the settings as [Run] does.
//
// RunSlots sends three commands for a slot, and up to four more for a new holder. Between slots it
// sends one command a minute. While the settings stop a due slot, it sends one command every 10 s.
//
// Errors: the errors of [Run]; [ErrNeverFires]; [ErrBadSchedule].
func RunSlots(ctx context.Context, m *distlock.Manager, s Slots) error {
	r := &runner{store: s.Store, name: s.Name, kind: KindSlots, drain: s.Drain, zone: s.Zone}
	if err := r.check(ctx, m); err != nil {
		return err
	}
	s.Grace, s.MostMissed = cmp.Or(s.Grace, time.Minute), cmp.Or(s.MostMissed, 100)
	s.MaxAttempts = cmp.Or(s.MaxAttempts, 5)
	switch {
	case s.Do == nil:
		return bad("Do is nil")
	case s.Schedule == nil:
		return bad("Schedule is nil")
	case s.Missed < RunOnce || s.Missed > RunAll:
		return bad("Missed is %d, must be RunOnce, Skip or RunAll", s.Missed)
	case s.Grace < 0:
		return bad("Grace is %v, must not be negative", s.Grace)
	case s.MaxAttempts < 1:
		return bad("MaxAttempts is %d, must be at least 1", s.MaxAttempts)
	case s.MostMissed < 1 || s.MostMissed > mostCounted:
		return bad("MostMissed is %d, must be 1 to %d", s.MostMissed, mostCounted)
	}
	if _, err := next(s.Schedule, r.clock.Now().Wall.In(r.zone)); err != nil {
		return err
	}
	r.pass = func(ctx context.Context, t *tenure) (time.Duration, error) { return s.pass(ctx, r, t) }
	r.next = func(t *tenure) time.Time { return s.Schedule.Next(t.rec.Slot.In(r.zone)) }
	return r.run(ctx)
}

// pass runs a slot if one is due, and returns the time until the next pass.
func (s *Slots) pass(ctx context.Context, r *runner, t *tenure) (time.Duration, error) {
	if !t.entered || r.clock.Now().Mono-t.read.Mono >= resync {
		if err := r.enter(t.guard.Context(), t); err != nil {
			return 0, err
		}
	}
	switch {
	case t.open:
		return 0, r.end(t)
	case t.rec.Slot.IsZero():
		return 0, s.countFromNow(r, t)
	case t.rec.State == Running:
		return s.unfinished(ctx, r, t)
	}
	if !t.planned { // the record may be from another schedule
		t.planned = true
		next := s.Schedule.Next(t.rec.Slot.In(r.zone))
		if !t.rec.Next.IsZero() && !t.rec.Next.Equal(next) && !t.rec.Slot.After(t.rec.seen) {
			r.log.Info().Time("was", t.rec.Next).Time("next", next).Msg("the schedule has changed")
			return 0, s.countFromNow(r, t)
		}
	}
	r.noteAhead(t)
	most := 1
	if s.Missed == RunAll {
		most = s.MostMissed
	}
	slots, missed, err := due(s.Schedule, t.rec.Slot.In(r.zone), r.now(t).In(r.zone), most)
	if err != nil {
		return 0, err
	}
	now := r.now(t).UTC().Truncate(time.Millisecond)
	if len(slots) == 0 && t.rec.asked() && now.After(t.rec.Slot) {
		slots = []time.Time{now}
	}
	if len(slots) == 0 {
		slot, err := next(s.Schedule, t.rec.Slot.In(r.zone))
		return min(slot.Sub(r.now(t)), resync), err
	}
	if ok, err := r.may(t.guard.Context(), t); err != nil || !ok {
		return lookAgain, err
	}
	if s.Missed == Skip && r.now(t).Sub(slots[0]) > s.Grace {
		return 0, s.skip(r, t, slots[0], missed+1)
	}
	return 0, s.begin(ctx, r, t, Slot{Time: slots[0], Attempt: 1, Missed: missed})
}

// countFromNow sets the latest slot to the server's time, so that earlier slots do not run.
func (s *Slots) countFromNow(r *runner, t *tenure) error {
	from := t.rec.seen
	return r.change(t, bson.D{e("slot", from), e("next", s.Schedule.Next(from.In(r.zone)))})
}

// unfinished handles a slot that has begun but has no recorded end.
func (s *Slots) unfinished(ctx context.Context, r *runner, t *tenure) (time.Duration, error) {
	rec := t.rec
	slot := Slot{Time: rec.Slot, Attempt: int(rec.Attempt)}
	switch {
	case rec.runFence == t.guard.Fence(): // the reply to the write that began the slot was lost
		return 0, s.run(ctx, r, t, slot)
	case !s.Rerun || rec.Attempt >= int64(s.MaxAttempts):
		r.log.Warn().Time("slot", rec.Slot).Int64("fence", rec.runFence).Int64("attempt", rec.Attempt).
			Msg("slot was interrupted")
		return 0, r.change(t, bson.D{
			e("state", Interrupted), e("failures", rec.Failures+1),
			e("lastError", "the process died in the slot, or could not record its end"),
			e("next", s.Schedule.Next(rec.Slot.In(r.zone))), written(interrupted(rec.Runs)),
		})
	}
	if ok, err := r.may(t.guard.Context(), t); err != nil || !ok {
		return lookAgain, err
	}
	slot.Attempt++
	return 0, s.begin(ctx, r, t, slot)
}

// begin records a slot as the latest slot, and runs it.
func (s *Slots) begin(ctx context.Context, r *runner, t *tenure, slot Slot) error {
	if ctx.Err() != nil || t.guard.Err() != nil {
		return nil
	}
	if slot.Missed > 0 {
		r.log.Warn().Int("missed", slot.Missed).Time("slot", slot.Time).Msg("slots were missed")
	}
	err := r.change(t, r.begun(t, slot.Time, slot.Attempt, slot.Missed), "begun")
	if err != nil {
		return err
	}
	return s.run(ctx, r, t, slot)
}

// run runs a slot whose beginning is recorded, and then records its end.
func (s *Slots) run(ctx context.Context, r *runner, t *tenure, slot Slot) error {
	slot.Time, slot.Guard = slot.Time.In(r.zone), t.guard
	r.round(ctx, t, func(ctx context.Context) error { return s.Do(ctx, slot) })
	if t.open && t.failed != nil {
		r.log.Warn().Err(t.failed).Time("slot", slot.Time).Int64("fence", t.guard.Fence()).
			Msg("round failed")
	}
	return r.end(t)
}

// skip records n missed slots. The last of them has the given time.
func (s *Slots) skip(r *runner, t *tenure, to time.Time, n int) error {
	r.log.Warn().Int("missed", n).Time("slot", to).Msg("slots were missed")
	return r.change(t, bson.D{
		e("state", Skipped), e("slot", to), e("missed", t.rec.Missed+int64(n)),
		e("next", s.Schedule.Next(to.In(r.zone))),
	})
}
