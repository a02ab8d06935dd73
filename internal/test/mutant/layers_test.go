package mutant_test

import (
	"testing"

	"mongodlm/internal/test/mutant"
	"mongodlm/internal/test/simulation"
)

// How many schedules the exhaustive exploration and the random walks need to notice a mistake, at
// most this many of each.
const (
	someSingles = 2500
	everyNth    = 5
	someWalks   = 60
)

func layers(t *testing.T, m mutant.Mistake) {
	n, rule := firstSingle(t, m)
	t.Logf("noticed by schedule %d with one fault: %s", n, rule)
	seed, rule := firstWalk(t, m)
	t.Logf("noticed by walk %d: %s", seed, rule)
}

func firstSingle(t *testing.T, m mutant.Mistake) (n int, rule string) {
	for _, scene := range simulation.Scenes() {
		scene.StoreMistake = m.Store
		r := simulation.Run(t, scene)
		if n++; r.Failed() {
			return n, r.Violations[0].Rule
		}
		i := 0
		for s := range simulation.Singles(scene, r.CallsOf) {
			if i++; i%everyNth != 0 {
				continue
			}
			if n++; n > someSingles {
				return 0, "no oracle"
			}
			if r := simulation.Run(t, s); r.Failed() {
				return n, r.Violations[0].Rule
			}
		}
	}
	return 0, "no oracle"
}

func firstWalk(t *testing.T, m mutant.Mistake) (int, string) {
	for seed := uint64(1); seed <= someWalks; seed++ {
		s := simulation.Walk(seed)
		s.StoreMistake = m.Store
		if r := simulation.Run(t, s); r.Failed() {
			return int(seed), r.Violations[0].Rule
		}
	}
	return 0, "no oracle"
}
