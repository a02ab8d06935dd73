package claim

import (
	"slices"
	"testing"
	"time"

	"mongodlm/internal/test/simulation"
)

// A walk can be played again by its seed: what a process leaves to chance comes from its clock. Where
// two goroutines of one process are ready in one instant, Go's scheduler chooses, so that a seed may
// have a few timelines; it has not a new one every time.
func TestWalk_SameSeed_SameTimeline(t *testing.T) {
	t.Parallel()
	const plays = 4
	var before [][]string
	for range plays {
		s, p := walk(3)
		s.Length, s.Trace, p.n = time.Minute, true, 5
		now := simulation.Run(t, s).Timeline
		if slices.ContainsFunc(before, func(lines []string) bool { return slices.Equal(lines, now) }) {
			return
		}
		before = append(before, now)
	}
	t.Errorf("one seed has %d timelines in as many plays", plays)
}
