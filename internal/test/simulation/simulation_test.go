package simulation_test

import (
	"testing"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/simulation"
)

func TestMain(m *testing.M) { effort.Main(m) }

// Random walks violate no rule, and every kind of fault happens in them.
func TestWalk_FindsNothing(t *testing.T) {
	t.Parallel()
	const enough = 16
	sum := simulation.Walks(t, enough, 6, simulation.Walk)
	for k := range simulation.Walked() {
		if sum["walks"] >= enough && sum[string(k)] == 0 {
			t.Errorf("no %s has happened", k)
		}
	}
}
