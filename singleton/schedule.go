package singleton

import (
	"errors"
	"fmt"
	"time"
)

// A Schedule returns the times of slots. [Every] returns a Schedule, and the schedules of
// github.com/robfig/cron/v3 implement it.
type Schedule interface {
	// Next returns the first slot after t, or the zero time when there is none. A slot is a whole
	// millisecond. The result must depend on t only, and must be the same in all processes.
	Next(t time.Time) time.Time
}

// Every returns the schedule of all multiples of d since the year 1, in UTC. If d is an hour, that
// is each full hour. d must be a positive multiple of a millisecond; otherwise the schedule never
// fires.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	d := time.Duration(e)
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return time.Time{}
	}
	return t.Truncate(d).Add(d)
}

// Limits of the function due: it counts at most mostCounted slots, and fails after mostSteps slots.
const mostCounted, mostSteps = 10_000, 1_000_000

// next returns the slot after t.
func next(s Schedule, t time.Time) (time.Time, error) {
	slot := s.Next(t)
	switch {
	case slot.IsZero():
		return slot, fmt.Errorf("%w after %s", ErrNeverFires, t.Format(time.RFC3339))
	case !slot.After(t):
		return slot, fmt.Errorf("%w: the slot after %s is %s, which is not later", ErrBadSchedule,
			t.Format(time.RFC3339Nano), slot.Format(time.RFC3339Nano))
	case slot.Nanosecond()%int(time.Millisecond) != 0:
		return slot, fmt.Errorf("%w: the slot %s is no whole millisecond", ErrBadSchedule,
			slot.Format(time.RFC3339Nano))
	}
	return slot, nil
}

// due returns the slots between two times, the oldest first: later than last and not later than
// now. It returns at most the given number, the latest ones. The result older is the number of
// slots that it leaves out, counted up to mostCounted. The error is ErrNeverFires if no slot is due
// and the schedule has no further slot.
func due(s Schedule, last, now time.Time, most int) (slots []time.Time, older int, err error) {
	steps := 0
	// between returns the slots that are later than from and not later than now. If there are more
	// than limit, it returns the earliest ones, and whole is false.
	between := func(from time.Time, limit int) (got []time.Time, whole bool, err error) {
		for t := from; ; steps++ {
			slot, err := next(s, t)
			if err != nil && !slot.IsZero() {
				return nil, false, err
			}
			if err != nil || slot.After(now) {
				if len(got) > 0 {
					err = nil
				}
				return got, true, err
			}
			if len(got) == limit {
				return got, false, nil
			}
			if steps > mostSteps {
				return nil, false, fmt.Errorf("%w: it has more than %d slots between %s and %s", ErrBadSchedule,
					mostSteps, from.Format(time.RFC3339), now.Format(time.RFC3339))
			}
			got, t = append(got, slot), slot
		}
	}
	slots, whole, err := between(last, mostCounted)
	if err != nil {
		return nil, 0, err
	}
	older = max(0, len(slots)-most)
	if whole {
		return slots[older:], older, nil
	}
	// There are more than mostCounted slots. Search for the latest ones, further and further back.
	older = mostCounted
	for back := time.Second; ; back *= 2 {
		slots, _, err = between(now.Add(-back), mostSteps)
		if err != nil && !errors.Is(err, ErrNeverFires) {
			return nil, 0, err
		}
		if len(slots) >= most {
			return slots[len(slots)-most:], older, nil
		}
	}
}
