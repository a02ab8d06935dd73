package mutant_test

import (
	"flag"
	"testing"

	"mongodlm/internal/explore"
	"mongodlm/internal/mutant"
)

var layers = flag.Bool("mutant.layers", false,
	"tell for every mistake how many schedules each layer needs to notice it; takes minutes")

// How many schedules the exhaustive exploration and the random walks need to notice each mistake,
// at most this many of each.
const (
	someSingles = 2500
	everyNth    = 5
	someWalks   = 60
)

func TestMistake_Layers(t *testing.T) {
	if !*layers {
		t.Skip("only with -mutant.layers")
	}
	for _, m := range mutant.All() {
		single, rule := firstSingle(t, m)
		walk, walkRule := firstWalk(t, m)
		t.Logf("| %d | %s | %d %s | %d %s |", m, m, single, rule, walk, walkRule)
	}
}

func firstSingle(t *testing.T, m mutant.Mistake) (int, string) {
	n := 0
	for _, scene := range explore.Scenes() {
		scene.Mistakes = mutant.Only(m)
		r := explore.Run(t, scene)
		if n++; r.Failed() {
			return n, r.Violations[0].Rule
		}
		i := 0
		for s := range explore.Singles(scene, r.CallsOf) {
			if i++; i%everyNth != 0 {
				continue
			}
			if n++; n > someSingles {
				return 0, ""
			}
			if r := explore.Run(t, s); r.Failed() {
				return n, r.Violations[0].Rule
			}
		}
	}
	return 0, ""
}

func firstWalk(t *testing.T, m mutant.Mistake) (int, string) {
	for seed := uint64(1); seed <= someWalks; seed++ {
		s := explore.Walk(seed)
		s.Mistakes = mutant.Only(m)
		if r := explore.Run(t, s); r.Failed() {
			return int(seed), r.Violations[0].Rule
		}
	}
	return 0, ""
}
