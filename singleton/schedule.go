package singleton

import (
	"errors"
	"fmt"
	"time"
)

// A Schedule returns the times of slots. [Every] is one, and those of github.com/robfig/cron/v3
// fit.
type Schedule interface {
	// Next returns the first slot after t, in whole milliseconds; the zero time when there is none. It
	// must depend on t only, and must be the same in all processes.
	Next(t time.Time) time.Time
}

// Every is the schedule of all multiples of d since the year 1, in UTC: whole hours for an hour. It
// fires never when d is shorter than a millisecond or not made of whole ones.
func Every(d time.Duration) Schedule { return every(d) }

type every time.Duration

func (e every) Next(t time.Time) time.Time {
	d := time.Duration(e)
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return time.Time{}
	}
	return t.Truncate(d).Add(d)
}

// mostCounted is how many slots are counted one by one, and mostSteps how many are looked at in
// all.
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

// due returns the latest slots after last and up to now, at most so many, the oldest first, and how
// many older ones there are, counted up to mostCounted. An error that says that the schedule fires
// no more is returned only when nothing is due.
func due(s Schedule, last, now time.Time, most int) (slots []time.Time, older int, err error) {
	steps := 0
	// between collects the slots after from, up to now; whole reports that it was not cut short.
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
	// Very many: count from times further and further back, until there are enough.
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
