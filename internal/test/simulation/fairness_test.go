package simulation_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
	"mongodlm/takeover"
)

// Each schedule that was made to break the line, with streams and without, in the first order of
// events and in a few that differ from it in one choice. Where the order of one instant is the
// point, in all orders of its events, as the flag -simulation.orders says.
func TestLines_FindNothing(t *testing.T) {
	t.Parallel()
	var sum simulation.Stats
	n, played := 0, 0
	play := func(s simulation.Schedule) simulation.Result {
		played++
		r := simulation.Run(t, s)
		sum.Add(r.Stats)
		if r.Failed() {
			s.Trace = true
			t.Errorf("%s, streams %v, choices %v: %v\n%s", s.Name, s.Streams, s.Choices,
				r.Violations, strings.Join(tail(simulation.Run(t, s).Timeline, 400), "\n"))
		}
		return r
	}
	for _, s := range simulation.Lines() {
		for _, streams := range []bool{false, true} {
			s.Streams = streams
			first := play(s)
			t.Logf("%s, streams %v: %d guards, %d granted in line, %d takeovers, %d evicted in line",
				s.Name, streams, first.Guards, first.Granted, first.Takeovers, first.Evicted)
			for other := range simulation.Others(s, first, 0) {
				if n++; n%(4*share()) == 0 {
					play(other)
				}
			}
			if s.Instant != 0 && !testing.Short() && !effort.Race {
				simulation.Orders(s, s.Instant, *deviations,
					func(s simulation.Schedule) (simulation.Result, bool) {
						n++
						return play(s), true
					})
			}
		}
	}
	t.Logf("%d of %d schedules, %d guards, %d granted in line, %d takeovers, %d evicted in line",
		played, n, sum.Guards, sum.Granted, sum.Takeovers, sum.Evicted)
}

// Each schedule of tries and at an edge of the protocol, with streams and without, in the first
// order of events; with the race detector every third. That none of them finds anything is half of
// what package mutant argues with.
func TestEdges_FindNothing(t *testing.T) {
	t.Parallel()
	for i, s := range slices.Concat(simulation.Tries(), simulation.Edges()) {
		if effort.Race && i%3 > 0 {
			continue
		}
		for _, streams := range []bool{false, true} {
			s.Streams = streams
			if r := simulation.Run(t, s); r.Failed() {
				s.Trace = true
				t.Errorf("%s, streams %v: %v\n%s", s.Name, s.Streams, r.Violations,
					strings.Join(tail(simulation.Run(t, s).Timeline, 400), "\n"))
			}
		}
	}
}

var play = flag.String("simulation.named", "",
	"play the schedule of that name, and print its timeline")

// The schedule of one name, when one is given.
func TestNamed_FindsNothing(t *testing.T) {
	if *play == "" {
		t.Skip("only with -simulation.named")
	}
	for _, streams := range []bool{false, true} {
		s := named(t, *play)
		s.Streams, s.Trace = streams, true
		r := simulation.Run(t, s)
		t.Logf("%s, streams %v:\n%s", s.Name, streams, strings.Join(r.Timeline, "\n"))
		if r.Failed() {
			t.Errorf("%s, streams %v: %v", s.Name, streams, r.Violations)
		}
	}
}

// I7, found by the schedules of the line: a ping interval as long as the gap that breaks a watch:
// the wait loop looked once a ping interval, a little late each time, and never got to a takeover.
func TestLine_PingAsLongAsTheGap_TheDeadAreBuried(t *testing.T) {
	t.Parallel()
	for _, s := range simulation.Lines() {
		if s.Name != "first in line dies" && s.Name != "holder and first in line die" {
			continue
		}
		s.Timing, s.Length = simulation.Coarse(), 8*time.Minute
		s.Timing.Mode = takeover.WatchOnly
		s.Processes[2].Rate = 0.97
		if r := simulation.Run(t, s); r.Failed() {
			t.Errorf("%s: %v", s.Name, r.Violations)
		}
	}
}
