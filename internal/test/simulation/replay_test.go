package simulation_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
)

// randomPart matches the random end of the field named who.
var randomPart = regexp.MustCompile(`:[0-9a-f]{8}\b`)

// A seed replays its walk: among twelve runs, two have the same timeline. Timelines differ only if
// goroutines that become ready at one instant run in another order.
func TestRun_SameSeed_SameTimeline(t *testing.T) {
	if effort.Race {
		t.Skip("the race detector changes the order of goroutines at random")
	}
	t.Parallel()
	const plays = 12
	for seed := uint64(1); seed <= 3; seed++ {
		s := simulation.Walk(seed)
		s.Length, s.Trace = 3*time.Minute, true
		var before [][]string
		again := false
		for range plays {
			now := simulation.Run(t, s).Timeline
			for i := range now {
				now[i] = randomPart.ReplaceAllString(now[i], "")
			}
			slices.Sort(now) // by time; one event may wake several users in any order
			same := func(lines []string) bool { return slices.Equal(lines, now) }
			if again = slices.ContainsFunc(before, same); again {
				break
			}
			before = append(before, now)
		}
		if !again {
			t.Errorf("seed %d has %d timelines in %d runs", seed, len(before), plays)
		}
	}
}
