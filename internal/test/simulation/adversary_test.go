package simulation_test

import (
	"os"
	"strconv"
	"testing"

	"mongodlm/internal/test/simulation"
)

// Names the seeds of a range whose walks find something.
func TestAdversary_Seeds(t *testing.T) {
	from, _ := strconv.ParseUint(os.Getenv("SEED_FROM"), 10, 64)
	to, _ := strconv.ParseUint(os.Getenv("SEED_TO"), 10, 64)
	for seed := from; seed < to; seed++ {
		if r := simulation.Run(t, simulation.Walk(seed)); r.Failed() {
			t.Errorf("seed %d: %.300s", seed, r.Violations[0])
		}
	}
}
