package singleton

import (
	"errors"
	"fmt"
	"time"
)

// A Schedule computes the times of slots. [Every] returns a Schedule. The schedules of
// github.com/robfig/cron/v3 implement this interface.
type Schedule interface {
	// Next returns the time of the first slot after t, or the zero time if there is none. The time of
	// a slot must be a whole number of milliseconds. The result must depend on t only, and must be the
	// same in all processes.
	Next(t time.Time) time.Time
}

// Every returns a schedule with a slot at each multiple of d since the beginning of the year 1, in
// UTC. For example, Every(time.Hour) has a slot at each full hour. If d is not a positive multiple
// of a millisecond, the schedule has no slots.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	d := time.Duration(e)
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return time.Time{}
	}
	return t.Truncate(d).Add(d)
}

// due counts at most mostCounted earlier slots. If it must search a period with more
// than mostSteps slots, it returns an error.
const mostCounted, mostSteps = 10_000, 1_000_000

// next returns the first slot after t. If the schedule violates a rule of Schedule, next returns an
// error.
func next(s Schedule, t time.Time) (time.Time, error) {
	slot := s.Next(t)
	switch {
	case slot.IsZero():
		return slot, fmt.Errorf("%w after %s", ErrNeverFires, t.Format(time.RFC3339))
	case !slot.After(t):
		return slot, fmt.Errorf("%w: the slot after %s is %s, which is not later", ErrBadSchedule,
			t.Format(time.RFC3339Nano), slot.Format(time.RFC3339Nano))
	case slot.Nanosecond()%int(time.Millisecond) != 0:
		return slot, fmt.Errorf("%w: the slot %s is not at a whole millisecond", ErrBadSchedule,
			slot.Format(time.RFC3339Nano))
	}
	return slot, nil
}

// between returns the slots after the time from, up to and including now, the oldest first. If
// there is no slot, and the schedule has no further slot, the error is ErrNeverFires.
func between(s Schedule, from, now time.Time) (slots []time.Time, err error) {
	for t := from; ; {
		slot, err := next(s, t)
		switch over := errors.Is(err, ErrNeverFires); {
		case err != nil && !(over && len(slots) > 0):
			return nil, err
		case over || slot.After(now):
			return slots, nil
		case len(slots) == mostSteps:
			return nil, fmt.Errorf("%w: it has more than %d slots between %s and %s", ErrBadSchedule,
				mostSteps, from.Format(time.RFC3339), now.Format(time.RFC3339))
		}
		slots, t = append(slots, slot), slot
	}
}

// due returns the slots of the period after last, up to and including now, the oldest first. It
// returns at most the given number of slots. If the period has more slots, due returns the latest
// slots. The result older is the number of earlier slots in the period, counted up to mostCounted.
// If the period has no slot, and the schedule has no further slot, the error is ErrNeverFires.
func due(s Schedule, last, now time.Time, most int) (slots []time.Time, older int, err error) {
	// Search a short period that ends now, and double it until it has enough slots or is the whole.
	for back := time.Second; ; back *= 2 {
		from := now.Add(-back).Truncate(time.Millisecond)
		whole := back > now.Sub(last)/2
		if whole {
			from = last
		}
		slots, err = between(s, from, now)
		if err != nil && (whole || !errors.Is(err, ErrNeverFires)) {
			return nil, 0, err
		}
		if older = len(slots) - most; whole || older >= mostCounted {
			return slots[max(0, older):], min(max(0, older), mostCounted), nil
		}
	}
}
