package simulation_test

import (
	"flag"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
)

var every = flag.Int("simulation.every", 25,
	"of the schedules with one fault play every n-th, 1 for all")

// base runs a schedule with only its own faults. The run must pass. The result has the number of
// commands of each process.
func base(t *testing.T, s simulation.Schedule) simulation.Result {
	t.Helper()
	r := simulation.Run(t, s)
	if r.Failed() {
		report(t, s, r)
		t.FailNow()
	}
	return r
}

// share returns n: the test plays every n-th schedule. With -short n is larger. With the race
// detector it is also larger, because each run takes ten times as long and a few runs cover all the
// code.
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

// The small schedules pass with one fault of every kind at every command.
func TestSingles_EveryCommand_FindsNothing(t *testing.T) {
	t.Parallel()
	sum := simulation.Stats{}
	n, played, start := 0, 0, time.Now()
	for _, scene := range simulation.Scenes() {
		calls := base(t, scene).CallsOf
		t.Logf("%s: %d commands", scene.Name, calls)
		for s := range simulation.Singles(scene, calls) {
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

// The small schedules pass with the order of two simultaneous events changed, everywhere.
func TestOrders_OfEqualInstants_FindNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: the orders of equal instants are many")
	}
	if effort.Race {
		t.Skip("left out with the race detector: the same code as in the schedules, in other orders " +
			"of virtual time")
	}
	n, start := 0, time.Now()
	for _, scene := range simulation.Scenes() {
		for _, s := range simulation.Orders(scene, base(t, scene).Options) {
			n++
			if r := simulation.Run(t, s); r.Failed() {
				report(t, s, r)
				return
			}
		}
	}
	t.Logf("%d orders in %v", n, time.Since(start).Round(time.Millisecond))
}
