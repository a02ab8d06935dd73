package simulation_test

import (
	"flag"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
)

var every = flag.Int("simulation.every", 25,
	"run every n-th schedule with one fault; 1 runs all")

// base runs a schedule without additional faults. It ends the test if the run fails.
func base(t *testing.T, s simulation.Schedule) simulation.Result {
	t.Helper()
	r := simulation.Run(t, s)
	if r.Failed() {
		report(t, s, r)
		t.FailNow()
	}
	return r
}

// share returns n if the test runs only every n-th schedule. With -simulation.every=1, n is
// 1. Otherwise -short and the race detector make n larger.
func share() int {
	n := *every
	if effort.Race && n > 1 {
		n *= 6
	}
	if testing.Short() && n > 1 {
		n *= 8
	}
	return n
}

// A small schedule violates no rule if a single fault strikes any one of its commands.
func TestSingles_EveryCommand_FindsNothing(t *testing.T) {
	t.Parallel()
	sum := simulation.Stats{}
	n, played, start := 0, 0, time.Now()
	for _, small := range simulation.Scenes() {
		calls := base(t, small).CallsOf
		t.Logf("%s: %d commands", small.Name, calls)
		for s := range simulation.Singles(small, calls) {
			if n++; n%share() != 0 {
				continue
			}
			played++
			r := simulation.Run(t, s)
			sum.Add(r.Stats)
			if r.Failed() {
				report(t, s, r)
				return
			}
		}
	}
	t.Logf("%d of %d schedules in %v: %v", played, n, time.Since(start).Round(time.Millisecond), sum)
}

// A small schedule violates no rule if another process acts first at any one instant.
func TestOrders_OfEqualInstants_FindNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: there are many orders")
	}
	if effort.Race {
		t.Skip("left out with the race detector: TestSingles runs the same code")
	}
	n, start := 0, time.Now()
	for _, small := range simulation.Scenes() {
		for _, s := range simulation.Orders(small, base(t, small).Options) {
			n++
			if r := simulation.Run(t, s); r.Failed() {
				report(t, s, r)
				return
			}
		}
	}
	t.Logf("%d orders in %v", n, time.Since(start).Round(time.Millisecond))
}
