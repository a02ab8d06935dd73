package singleton

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type grid struct {
	d     time.Duration
	hours []int
}

func (g grid) Next(t time.Time) time.Time {
	for range 100_000 {
		if t = t.Truncate(g.d).Add(g.d); slices.Contains(g.hours, t.Hour()) {
			return t
		}
	}
	return time.Time{}
}

// The function due returns the same slots as repeated calls of Next.
func TestDue_IsWhatCountingFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := grid{
			d:     time.Duration(rapid.IntRange(1, 5000).Draw(t, "seconds")) * time.Second,
			hours: rapid.SliceOfNDistinct(rapid.IntRange(0, 23), 1, 24, rapid.ID[int]).Draw(t, "hours"),
		}
		start := time.Date(2024, 2, 28, 0, 0, 0, 0, time.UTC)
		last := start.Add(time.Duration(rapid.IntRange(0, 200_000).Draw(t, "last")) * time.Second)
		now := last.Add(time.Duration(rapid.IntRange(-1000, 400_000).Draw(t, "span")) * time.Second)
		most := rapid.IntRange(1, 200).Draw(t, "most")
		var all []time.Time
		for slot := s.Next(last); !slot.IsZero() && !slot.After(now); slot = s.Next(slot) {
			all = append(all, slot)
		}
		slots, older, err := due(s, last, now, most)
		if err != nil {
			if len(all) > 0 || !errors.Is(err, ErrNeverFires) {
				t.Fatal(err)
			}
			return
		}
		want := all[max(0, len(all)-most):]
		if !slices.EqualFunc(slots, want, time.Time.Equal) {
			t.Fatalf("due %v, want %v", slots, want)
		}
		if got := min(len(all)-len(want), mostCounted); older != got && len(all) <= mostCounted {
			t.Fatalf("%d older, want %d", older, got)
		}
	})
}

// The function due can count a year of slots that are a millisecond apart.
func TestDue_AYearOfMilliseconds(t *testing.T) {
	t.Parallel()
	now := time.Date(2024, 2, 28, 0, 0, 0, 0, time.UTC)
	slots, older, err := due(Every(time.Millisecond), now.AddDate(-1, 0, 0), now, 2)
	if err != nil || len(slots) != 2 || !slots[1].Equal(now) || older != mostCounted {
		t.Errorf("due %v, %d older, %v", slots, older, err)
	}
}
