package main

import (
	"testing"
	"time"

	"mongodlm/internal/test/effort"
)

// A generation works with a value two seconds below the constant in its source, and breaks with a
// value two seconds above. Contenders read once a second, so the test cannot be more precise. A
// generation without such a constant works at the end of the sweep.
func TestSweeps_BreakAtTheConstantsOfTheSources(t *testing.T) {
	t.Parallel()
	const slack = 2 * time.Second
	for _, sw := range Sweeps() {
		if effort.Race && sw.Name != "skew" {
			continue
		}
		for _, g := range Generations() {
			edge, breaks := sw.Edges[g.Name]
			at := func(far time.Duration, want bool) {
				broken, not := sw.At(g, far)
				if broken != want || not != "" && breaks {
					t.Errorf("%s by %s, turned by %v: breaks %v, want %v by %s", sw.Name, g.Name, far, broken,
						want, edge.Why)
				}
			}
			if !breaks {
				at(sw.Most, false)
				continue
			}
			if at(edge.From+slack, true); edge.From > slack {
				at(edge.From-slack, false)
			}
		}
	}
}
