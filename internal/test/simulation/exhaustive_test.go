package simulation_test

import (
	"flag"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
)

var every = flag.Int("simulation.every", 100,
	"run every n-th schedule with one fault; 1 runs all")

// share returns n if the test runs only every n-th schedule. With -simulation.every=1, n is
// 1. Otherwise -short and the race detector make n larger.
func share() int {
	n := *every
	if effort.Race && n > 1 {
		n *= 3
	}
	if testing.Short() && n > 1 {
		n *= 2
	}
	return n
}

// A small schedule violates no rule if a single fault strikes any one of its commands.
func TestSingles_EveryCommand_FindsNothing(t *testing.T) {
	t.Parallel()
	sum := simulation.Stats{}
	n, played, start := 0, 0, time.Now()
	for _, small := range simulation.Scenes() {
		r := simulation.Run(t, small)
		if r.Failed() {
			simulation.Report(t, small, r)
			return
		}
		t.Logf("%s: %d commands", small.Name, r.CallsOf)
		for s := range simulation.Singles(small, r.CallsOf) {
			if n++; n%share() != 0 {
				continue
			}
			played++
			r := simulation.Run(t, s)
			sum.Add(r.Stats)
			if r.Failed() {
				simulation.Report(t, s, r)
				return
			}
		}
	}
	t.Logf("%d of %d schedules in %v: %v", played, n, time.Since(start).Round(time.Millisecond), sum)
}
