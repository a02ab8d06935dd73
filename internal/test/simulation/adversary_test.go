package simulation_test

import (
	"os"
	"strconv"
	"testing"

	"mongodlm/internal/test/simulation"
)

// With -v the test lists the seeds from SEED_FROM to SEED_TO that have a violation.
func TestAdversary_Seeds(t *testing.T) {
	from, _ := strconv.ParseUint(os.Getenv("SEED_FROM"), 10, 64)
	to, _ := strconv.ParseUint(os.Getenv("SEED_TO"), 10, 64)
	for seed := from; seed < to; seed++ {
		r := simulation.Run(t, simulation.Walk(seed))
		if seed%10 == 0 {
			t.Logf("seed %d", seed)
		}
		if r.Failed() {
			t.Errorf("seed %d: %.300s", seed, r.Violations[0])
		}
	}
}
