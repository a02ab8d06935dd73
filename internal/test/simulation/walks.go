package simulation

import (
	"cmp"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/test/effort"
)

var (
	seedFlag  = flag.Uint64("simulation.seed", 0, "run only this random walk and print its timeline")
	timeFlag  = flag.Duration("simulation.time", 0, "run random walks for this time")
	walksFlag = flag.Int("simulation.walks", 0, "number of random walks; 0 means the default of a test")
	fromFlag  = flag.Uint64("simulation.from", 1, "seed of the first random walk")
)

// Walks runs n random walks. With -short or the race detector it runs only the given smaller
// number. The function argument maps a seed to the schedule of a walk. Walks returns the sum of the
// counts, and ends at the first violation. Flags can select other walks. With -simulation.seed it
// runs only that walk, prints its timeline, and returns nil.
func Walks(t *testing.T, n, short int, of func(seed uint64) Schedule) Stats {
	t.Helper()
	if (testing.Short() || effort.Race) && *timeFlag == 0 {
		n = short
	}
	n = cmp.Or(*walksFlag, n)
	sum := Stats{}
	since := clock.System() // its monotonic time begins now
	took := func() time.Duration { return since.Now().Mono }
	for seed := cmp.Or(*seedFlag, *fromFlag); sum["walks"] < n || took() < *timeFlag; seed++ {
		s := of(seed)
		s.Trace = *seedFlag != 0
		r := Run(t, s)
		if s.Trace {
			t.Logf("%s\n%s", s.Name, strings.Join(r.Timeline, "\n"))
		}
		if r.Failed() {
			Report(t, s, r)
		}
		if s.Trace || r.Failed() {
			return nil
		}
		sum.Add(r.Stats)
		sum["walks"]++
	}
	t.Logf("%v: %v", took().Round(time.Millisecond), sum)
	return sum
}

// Report fails the test. Without -short it first shrinks a schedule of the lock, and prints its
// faults, its timeline and the flags that repeat the run.
func Report(t *testing.T, s Schedule, r Result) {
	t.Helper()
	if testing.Short() || s.World != nil {
		t.Errorf("%s: %v\nreplay a walk: -run %s -v -simulation.seed=%d", s.Name, r.Violations, t.Name(),
			s.Seed)
		return
	}
	rule := r.Violations[0].Rule
	shorter := shrink(s, func(s Schedule) bool {
		r := Run(t, s)
		return r.Failed() && r.Violations[0].Rule == rule
	})
	shorter.Trace = true
	r = Run(t, shorter)
	t.Errorf("%s: %v\nreplay a walk: -run Walk_Finds -v -simulation.seed=%d\nfaults: %+v\n%s", s.Name,
		r.Violations, s.Seed, shorter.Faults,
		strings.Join(r.Timeline[max(0, len(r.Timeline)-400):], "\n"))
}

// shrink removes faults from a failing schedule, and returns a shorter schedule that still fails.
// It first tries to remove many faults at a time, then fewer. The given function runs a schedule
// and reports whether the run fails.
func shrink(s Schedule, fails func(Schedule) bool) Schedule {
	for size := len(s.Faults); size > 0; size /= 2 {
		for from := 0; from < len(s.Faults); {
			t := s
			t.Faults = slices.Delete(slices.Clone(s.Faults), from, min(from+size, len(s.Faults)))
			if fails(t) {
				s = t
			} else {
				from += size
			}
		}
	}
	return s
}
