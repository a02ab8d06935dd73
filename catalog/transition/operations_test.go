package transition_test

import (
	"slices"
	"testing"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// Each transition and each change of a ping returns a different Op. The method Writes of each Op
// returns true.
func TestOps_EveryChangeHasOneAndWrites(t *testing.T) {
	t.Parallel()
	seen := map[catalog.Op]bool{}
	for _, c := range []interface{ Op() catalog.Op }{
		transition.Enter{How: catalog.TryPlain}, transition.Enter{}, transition.Leave{},
		transition.Evict{}, transition.GrantNext{}, transition.Confirm{}, transition.SeedFence{},
		transition.Renew{}, transition.PutFirst{}, transition.RequestYield{}, transition.Break{},
		transition.Condemn{}, transition.Witness{}, transition.RemovePing{},
	} {
		op := c.Op()
		if !slices.Contains(catalog.Ops(), op) || !op.Writes() || seen[op] {
			t.Errorf("%T: %q is not a writing operation, or not only of this type", c, op)
		}
		seen[op] = true
	}
}
