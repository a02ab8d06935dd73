package simulation_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
)

var (
	seedFlag = flag.Uint64("simulation.seed", 0, "run only this random walk and print its timeline")
	timeFlag = flag.Duration("simulation.time", 0, "run random walks for this time")
	walks    = flag.Int("simulation.walks", 0, "number of random walks; 0 means 25, or 6 with -short")
	fromSeed = flag.Uint64("simulation.from", 1, "seed of the first random walk")
)

func TestMain(m *testing.M) {
	flag.Parse()
	effort.Main(m)
}

// report fails the test. Without -short it first shrinks the schedule, then prints its faults, its
// timeline and the flags that repeat the run.
func report(t *testing.T, s simulation.Schedule, r simulation.Result) {
	t.Helper()
	if testing.Short() {
		t.Errorf("%s: %v", s.Name, r.Violations)
		return
	}
	rule := r.Violations[0].Rule
	short := simulation.Shrink(s, func(s simulation.Schedule) bool {
		r := simulation.Run(t, s)
		return r.Failed() && r.Violations[0].Rule == rule
	})
	short.Trace = true
	r = simulation.Run(t, short)
	t.Errorf("%s: %v\nreplay a walk: -run Walk -v -simulation.seed=%d\nfaults: %+v\n%s", s.Name,
		r.Violations, s.Seed, short.Faults,
		strings.Join(r.Timeline[max(0, len(r.Timeline)-400):], "\n"))
}

// Among twelve runs with the same seed, two have the same timeline. The timelines differ only in
// the order of goroutines that become ready at one instant.
func TestRun_SameSeed_SameTimeline(t *testing.T) {
	t.Parallel()
	const plays = 12
	for seed := uint64(1); seed <= 3; seed++ {
		s := simulation.Walk(seed)
		s.Length, s.Trace = 3*time.Minute, true
		var before [][]string
		again := false
		for range plays {
			now := simulation.Run(t, s).Timeline
			same := func(lines []string) bool { return slices.Equal(lines, now) }
			if again = slices.ContainsFunc(before, same); again {
				break
			}
			before = append(before, now)
		}
		if !again {
			t.Errorf("seed %d has %d timelines in %d plays", seed, len(before), plays)
		}
	}
}

func walked() int {
	switch {
	case *walks > 0:
		return *walks
	case (testing.Short() || effort.Race) && *timeFlag == 0:
		return 6
	}
	return 25
}

// Random walks violate no rule, and every kind of fault happens in them.
func TestWalk_FindsNothing(t *testing.T) {
	t.Parallel()
	if *seedFlag != 0 {
		s := simulation.Walk(*seedFlag)
		s.Trace = true
		r := simulation.Run(t, s)
		t.Logf("%s", strings.Join(r.Timeline, "\n"))
		if r.Failed() {
			report(t, s, r)
		}
		return
	}
	sum := simulation.Stats{}
	n, start := 0, time.Now()
	for seed := *fromSeed; n < walked() || time.Since(start) < *timeFlag; seed++ {
		s := simulation.Walk(seed)
		r := simulation.Run(t, s)
		sum.Add(r.Stats)
		n++
		if r.Failed() {
			report(t, s, r)
			return
		}
	}
	for k := range simulation.Walked() {
		if walked() >= 25 && sum[string(k)] == 0 {
			t.Errorf("no %s has happened", k)
		}
	}
	t.Logf("%d walks in %v: %v", n, time.Since(start).Round(time.Millisecond), sum)
}
