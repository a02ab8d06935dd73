package singleton

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
)

// Missed says what becomes of slots that were due while no process ran them: there was none, the
// settings stopped them, a slot before took too long, or the holder died and was not taken over
// yet.
type Missed int

// What becomes of missed slots.
const (
	// RunOnce runs the latest of them, however old, and none of the others.
	RunOnce Missed = iota
	// Skip runs the latest of them if it is no older than Grace, and none of the others.
	Skip
	// RunAll runs them all, the oldest first, but no more than the latest MostMissed.
	RunAll
)

// A Slot is one time of a schedule, as it is given to Do.
type Slot struct {
	// Time is that of the schedule, not that at which it runs.
	Time time.Time
	// Attempt is 1, or more when processes died in this slot; see Slots.Rerun.
	Attempt int
	// Missed is how many slots before this one were not run, counted up to 10,000.
	Missed int
	// Guard is held while the slot runs. Its fence tells a late process from the one that runs now.
	Guard *distlock.TryGuard
}

// Slots is a function that runs once for each slot of a schedule, on one process of all that run
// the Slots of this name. The zero value of a field that is not required means its default.
type Slots struct {
	// Name is that of the lock, of the settings and of the record. Required.
	Name string
	// Store keeps the settings and the record. Default: the database of the Manager, if its Config has
	// a Client; RunNow needs one.
	Store Store
	// Schedule says when the slots are, the same for all processes. Required.
	Schedule Schedule
	// Zone is the time zone of the times that the schedule is given, which is its own zone if it names
	// none, and that of the active window. Default UTC, so that all processes mean the same.
	Zone *time.Location
	// Do is the work of a slot, see Loop.Do. Required.
	Do func(ctx context.Context, slot Slot) error
	// Missed says what becomes of missed slots. Default RunOnce.
	Missed Missed
	// Grace is how late Skip runs a slot. Default 1 min.
	Grace time.Duration
	// MostMissed is how many RunAll runs, 1 to 10,000. Default 100.
	MostMissed int
	// Rerun runs a slot again in which a process died, until it was begun MaxAttempts times. Without
	// it, and then, the slot is recorded as Interrupted.
	Rerun bool
	// MaxAttempts is how often Rerun begins a slot in all: one that kills its process is not to kill
	// them all. Default 5.
	MaxAttempts int
	// Drain is how long a slot may go on after the context of RunSlots has ended. Default 30 s.
	Drain time.Duration
}

// RunSlots runs Slots until ctx ends. One process holds the lock, from slot to slot, as with [Run].
//
// What runs once is the slot and not the lock. The record has the time of the latest slot that was
// begun. The holder moves it on, by a compare-and-set under its fence, before it calls Do. So no
// slot is begun by two processes, whatever their clocks say and whoever holds the lock: a holder
// that was taken over changes nothing. The server's clock says when a slot is due: the primary's,
// where there is one. A server's clock that steps back delays slots and repeats none; one that
// steps ahead makes them early.
//
// Without Rerun a slot is begun at most once: when the process dies in it, or is cut off until it
// is taken over, the next holder records it as Interrupted, with an error, and goes on with the
// next. It may have been done. With Rerun it is begun again until one attempt ends, or MaxAttempts
// were begun, and the fence tells the attempts apart. A slot whose Do returned an error, or
// panicked, was run: it is recorded as Failed, and not run again.
//
// The slots of a name count from the first time that it is run, and from the time at which a
// process holds the lock first that has another schedule. A schedule of a zone with daylight saving
// is as it says itself: one of robfig/cron has no slot in an hour that is left out, and two in one
// that comes twice, so that a job of 02:30 runs not at all on one day of the year, and twice on
// another.
//
// A slot that is ahead of the server's clock by more than a minute, as one that was begun while
// that was wrong, is logged: no slot begins until then. docs/singleton.md says how that is
// repaired.
//
// Settings stop slots as they stop
// rounds; what was stopped was missed. The store, the settings and errors are as with [Run].
// Besides: [ErrNeverFires], and [ErrBadSchedule].
//
// Commands: three a slot, one a minute without any, one every 10 s while the settings stop a slot,
// four more for a new holder.
func RunSlots(ctx context.Context, m *distlock.Manager, s Slots) error {
	r := &runner{store: s.Store, name: s.Name, kind: KindSlots, drain: s.Drain, zone: s.Zone}
	if err := r.check(ctx, m); err != nil {
		return err
	}
	if err := orDefault("Grace", &s.Grace, time.Minute); err != nil {
		return err
	}
	if s.MostMissed == 0 {
		s.MostMissed = 100
	}
	if s.MaxAttempts == 0 {
		s.MaxAttempts = 5
	}
	switch {
	case s.Do == nil:
		return bad("Do is nil")
	case s.Schedule == nil:
		return bad("Schedule is nil")
	case s.Missed < RunOnce || s.Missed > RunAll:
		return bad("Missed is %d, must be RunOnce, Skip or RunAll", s.Missed)
	case s.MaxAttempts < 1:
		return bad("MaxAttempts is %d, must be at least 1", s.MaxAttempts)
	case s.MostMissed < 1 || s.MostMissed > mostCounted:
		return bad("MostMissed is %d, must be 1 to %d", s.MostMissed, mostCounted)
	}
	if _, err := next(s.Schedule, r.clock.Now().Wall.In(r.zone)); err != nil {
		return err
	}
	r.pass = func(ctx context.Context, t *tenure) (time.Duration, error) { return s.pass(ctx, r, t) }
	return r.run(ctx)
}

// An outcome is what came of a slot that ran here.
type outcome struct {
	slot    time.Time
	attempt int64
	err     error
	took    time.Duration
}

// pass runs the slot that is due, if one is, and says when to look again.
func (s *Slots) pass(ctx context.Context, r *runner, t *tenure) (time.Duration, error) {
	if !t.entered || r.clock.Now().Mono-t.read.Mono >= resync {
		if err := r.enter(t.guard.Context(), t); err != nil {
			return 0, err
		}
	}
	if t.rec.Slot.IsZero() {
		return 0, s.countFromNow(r, t)
	}
	if t.rec.State == Running {
		return s.unfinished(ctx, r, t)
	}
	t.open = false
	if !t.planned { // it may be that of another schedule
		t.planned = true
		next := s.Schedule.Next(t.rec.Slot.In(r.zone))
		if !t.rec.Next.IsZero() && !t.rec.Next.Equal(next) && !t.rec.Slot.After(t.rec.seen) {
			r.log.Info().Time("was", t.rec.Next).Time("next", next).Msg("the schedule is a new one")
			return 0, s.countFromNow(r, t)
		}
	}
	r.noteAhead(t)
	slots, missed, err := due(s.Schedule, t.rec.Slot.In(r.zone), r.now(t).In(r.zone), s.most())
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

// countFromNow lets slots count from now: those of this schedule before now never were.
func (s *Slots) countFromNow(r *runner, t *tenure) error {
	from := t.rec.seen
	return r.change(t, bson.D{e("slot", from), e("next", s.Schedule.Next(from.In(r.zone)))})
}

// most is how many of the slots that are due may be run.
func (s *Slots) most() int {
	if s.Missed == RunAll {
		return s.MostMissed
	}
	return 1
}

// unfinished deals with a slot that was begun and whose end is not recorded.
func (s *Slots) unfinished(ctx context.Context, r *runner, t *tenure) (time.Duration, error) {
	rec := t.rec
	mine := rec.runFence == t.guard.Fence()
	slot := Slot{Time: rec.Slot, Attempt: int(rec.Attempt)}
	switch {
	case mine && t.ran != nil && t.ran.slot.Equal(rec.Slot) && t.ran.attempt == rec.Attempt:
		return 0, s.end(r, t, *t.ran) // it could not be recorded
	case mine: // the answer to its beginning was lost: it has not run
		if ctx.Err() != nil || t.guard.Err() != nil {
			return 0, nil
		}
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

// begin moves the record on to a slot, and runs it.
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

// run does the work of a slot that was begun, and records its end.
func (s *Slots) run(ctx context.Context, r *runner, t *tenure, slot Slot) error {
	slot.Time, slot.Guard = slot.Time.In(r.zone), t.guard
	began, err := r.work(ctx, t, func(ctx context.Context) error { return s.Do(ctx, slot) })
	if !began {
		return nil
	}
	if err != nil {
		r.log.Warn().Err(err).Time("slot", slot.Time).Int64("fence", t.guard.Fence()).Msg("round failed")
	}
	t.ran = &outcome{slot.Time, int64(slot.Attempt), err, r.clock.Now().Mono - t.read.Mono}
	return s.end(r, t, *t.ran)
}

func (s *Slots) end(r *runner, t *tenure, ran outcome) error {
	t.open = true
	next := s.Schedule.Next(ran.slot.In(r.zone))
	err := r.change(t, ending(t.rec, ran.err, next, ran.took), "ended")
	t.open = err != nil
	return err
}

// skip moves the record on past slots that are not run.
func (s *Slots) skip(r *runner, t *tenure, to time.Time, n int) error {
	r.log.Warn().Int("missed", n).Time("slot", to).Msg("slots were missed")
	return r.change(t, bson.D{
		e("state", Skipped), e("slot", to), e("missed", t.rec.Missed+int64(n)),
		e("next", s.Schedule.Next(to.In(r.zone))),
	})
}
