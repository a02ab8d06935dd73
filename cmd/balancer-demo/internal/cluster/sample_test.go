package cluster_test

import (
	"slices"
	"testing"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

// The policy balances the sample in 70 rounds and loses no chunk. At the end the draining shard has
// only chunks of collections that are not balanced.
func TestSample_PolicyUntilBalanced_EmptiesTheDrainingShard(t *testing.T) {
	t.Parallel()
	c := assert.Value(cluster.Sample())(t)
	chunks, rounds := len(c.Chunks), 0
	for moves := cluster.Candidates(c); len(moves) > 0; moves = cluster.Candidates(c) {
		rounds++
		for _, m := range moves {
			i := slices.IndexFunc(c.Chunks,
				func(o cluster.Chunk) bool { return o.Name() == m.Chunk.Name() })
			c.Chunks[i].Shard = m.To
		}
		if rounds > 70 {
			t.Fatalf("not balanced after %d rounds", rounds)
		}
	}
	if rounds != 70 || chunks != 612 || len(c.Chunks) != chunks {
		t.Errorf("%d rounds; %d chunks before, %d after", rounds, chunks, len(c.Chunks))
	}
	for _, chunk := range c.Chunks {
		draining := slices.ContainsFunc(c.Shards,
			func(s cluster.Shard) bool { return s.ID == chunk.Shard && s.Draining })
		balanced := slices.ContainsFunc(c.Collections, func(n cluster.Collection) bool {
			return n.NS == chunk.NS && !n.Dropped && !n.NoBalance
		})
		if draining && balanced {
			t.Errorf("chunk %s of %s is left on draining %s", chunk.Name(), chunk.NS, chunk.Shard)
		}
	}
}
