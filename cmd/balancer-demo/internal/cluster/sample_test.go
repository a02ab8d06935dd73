package cluster_test

import (
	"testing"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

// The sample is balanced after a bounded number of rounds, and no chunk is lost.
func TestSample_PolicyUntilBalanced_EndsBelowTheThresholds(t *testing.T) {
	t.Parallel()
	before := assert.Value(cluster.Sample())(t)
	if len(before.Chunks) < 600 || len(before.Collections) < 3 {
		t.Fatalf("the sample has %d chunks in %d collections, want 600 in 3 at least",
			len(before.Chunks), len(before.Collections))
	}
	after, rounds, moves := balance(t, before, 120)
	t.Logf("%d chunks in %d collections: balanced after %d rounds and %d moves",
		len(before.Chunks), len(before.Collections), rounds, moves)
	t.Logf("chunks before: %v", before.Counts())
	t.Logf("chunks after:  %v", after.Counts())

	if rounds < 40 {
		t.Errorf("balanced after %d rounds: too few to show anything", rounds)
	}
	assert.Equal(t, len(after.Chunks), len(before.Chunks), "%d chunks are left of %d")
	checkBalanced(t, after)
}

// balance applies the policy until it finds no move.
func balance(t *testing.T, c cluster.Cluster, limit int) (cluster.Cluster, int, int) {
	t.Helper()
	moves := 0
	for round := range limit {
		candidates := cluster.Candidates(c)
		if len(candidates) == 0 {
			return c, round, moves
		}
		chunks := make([]cluster.Chunk, len(c.Chunks))
		copy(chunks, c.Chunks)
		for _, m := range candidates {
			moves++
			for i := range chunks {
				if chunks[i].Name() == m.Chunk.Name() {
					chunks[i].Shard = m.To
					chunks[i].Lastmod = c.NextVersion(m.Chunk.NS)
				}
			}
		}
		c.Chunks = chunks
		var err error
		if c, err = cluster.Assemble(c); err != nil {
			t.Fatalf("after round %d: %v", round, err)
		}
	}
	t.Fatalf("not balanced after %d rounds", limit)
	return c, 0, 0
}

// checkBalanced checks the counts independently of the policy.
func checkBalanced(t *testing.T, c cluster.Cluster) {
	t.Helper()
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
			if s.Draining {
				if count != 0 {
					t.Errorf("%s: %d chunks are left on draining %s", n.NS, count, s.ID)
				}
				continue
			}
			least, most = min(least, count), max(most, count)
		}
		if most-least >= cluster.Threshold(total) {
			t.Errorf("%s: %d chunks, from %d to %d on a shard: the difference is not below %d",
				n.NS, total, least, most, cluster.Threshold(total))
		}
	}
}
