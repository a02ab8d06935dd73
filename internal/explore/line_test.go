package explore_test

import (
	"strings"
	"testing"

	"mongodlm/internal/explore"
)

// Each schedule that was made to break the line, with streams and without, in the first order of
// events and in orders that differ from it in one choice; where the order at one instant is the point,
// in all orders of its events that differ in two.
func TestLines_FindNothing(t *testing.T) {
	t.Parallel()
	var sum explore.Stats
	n, played := 0, 0
	play := func(s explore.Schedule) explore.Result {
		played++
		r := explore.Run(t, s)
		sum.Add(r.Stats)
		if r.Failed() {
			s.Trace = true
			t.Errorf("%s, streams %v, choices %v: %v\n%s", s.Name, s.Streams, s.Choices,
				r.Violations, strings.Join(tail(explore.Run(t, s).Timeline, 400), "\n"))
		}
		return r
	}
	for _, s := range explore.Lines() {
		for _, streams := range []bool{false, true} {
			s.Streams = streams
			first := play(s)
			t.Logf("%s, streams %v: %d guards, %d granted in line, %d takeovers, %d buried in line",
				s.Name, streams, first.Guards, first.Granted, first.Takeovers, first.Buried)
			for other := range explore.Others(s, first, 0) {
				if n++; n%(4**every) == 0 {
					play(other)
				}
			}
			if s.Instant != 0 {
				explore.Orders(s, s.Instant, 2, func(s explore.Schedule) (explore.Result, bool) {
					n++
					return play(s), true
				})
			}
		}
	}
	t.Logf("%d of %d schedules, %d guards, %d granted in line, %d takeovers, %d buried in line",
		played, n, sum.Guards, sum.Granted, sum.Takeovers, sum.Buried)
}
