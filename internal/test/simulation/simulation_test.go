package simulation_test

import (
	"cmp"
	"flag"
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

// report fails the test. Without -short it first shrinks a schedule of the lock, and prints its
// faults, its timeline and the flags that repeat the run.
func report(t *testing.T, s simulation.Schedule, r simulation.Result) {
	t.Helper()
	if testing.Short() || s.World != nil {
		t.Errorf("%s: %v\nreplay a walk: -run %s -v -simulation.seed=%d", s.Name, r.Violations, t.Name(),
			s.Seed)
		return
	}
	rule := r.Violations[0].Rule
	short := simulation.Shrink(s, func(s simulation.Schedule) bool {
		r := simulation.Run(t, s)
		return r.Failed() && r.Violations[0].Rule == rule
	})
	short.Trace = true
	r = simulation.Run(t, short)
	t.Errorf("%s: %v\nreplay a walk: -run Walk_Finds -v -simulation.seed=%d\nfaults: %+v\n%s", s.Name,
		r.Violations, s.Seed, short.Faults,
		strings.Join(r.Timeline[max(0, len(r.Timeline)-400):], "\n"))
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

// walk runs at least n random walks, and returns the sum of their counts. It ends at the first
// violation. With -simulation.seed it runs only that walk, and prints its timeline.
func walk(t *testing.T, n int, of func(seed uint64) simulation.Schedule) simulation.Stats {
	t.Helper()
	sum := simulation.Stats{}
	played, start := 0, time.Now()
	for seed := cmp.Or(*seedFlag, *fromSeed); played < n || time.Since(start) < *timeFlag; seed++ {
		s := of(seed)
		s.Trace = *seedFlag != 0
		r := simulation.Run(t, s)
		if s.Trace {
			t.Logf("%s\n%s", s.Name, strings.Join(r.Timeline, "\n"))
		}
		if r.Failed() {
			report(t, s, r)
		}
		if s.Trace || r.Failed() {
			return sum
		}
		played++
		sum.Add(r.Stats)
	}
	t.Logf("%d walks in %v: %v", played, time.Since(start).Round(time.Millisecond), sum)
	return sum
}

// Random walks violate no rule, and every kind of fault happens in them.
func TestWalk_FindsNothing(t *testing.T) {
	t.Parallel()
	sum := walk(t, walked(), simulation.Walk)
	for k := range simulation.Walked() {
		if *seedFlag == 0 && walked() >= 25 && !t.Failed() && sum[string(k)] == 0 {
			t.Errorf("no %s has happened", k)
		}
	}
}
