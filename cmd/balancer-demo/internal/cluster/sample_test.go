package cluster_test

import (
	"slices"
	"testing"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

// The policy balances the sample in 70 rounds and loses no chunk. At the end the draining shard is
// empty. For each collection, the chunk counts of the other shards differ by less than the
// threshold.
func TestSample_PolicyUntilBalanced_EndsBelowTheThresholds(t *testing.T) {
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
	counts := map[string]int{} // by shard and collection
	for _, chunk := range c.Chunks {
		counts[chunk.Shard+" "+chunk.NS]++
	}
	for _, n := range c.Collections {
		if n.Dropped || n.NoBalance {
			continue
		}
		least, most, total := 1<<30, 0, 0
		for _, s := range c.Shards {
			count := counts[s.ID+" "+n.NS]
			total += count
			if s.Draining && count == 0 {
				continue
			}
			least, most = min(least, count), max(most, count)
			if s.Draining {
				t.Errorf("%s: %d chunks are left on draining %s", n.NS, count, s.ID)
			}
		}
		if most-least >= cluster.Threshold(total) {
			t.Errorf("%s: %d chunks, from %d to %d on a shard: the difference is not below %d",
				n.NS, total, least, most, cluster.Threshold(total))
		}
	}
}
