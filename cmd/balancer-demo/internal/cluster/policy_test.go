package cluster_test

import (
	"strings"
	"testing"

	"mongodlm/cmd/balancer-demo/internal/cluster"
)

func TestThreshold_AtTheSteps(t *testing.T) {
	t.Parallel()
	for chunks, want := range map[int]int{0: 2, 19: 2, 20: 4, 79: 4, 80: 8, 5000: 8} {
		if got := cluster.Threshold(chunks); got != want {
			t.Errorf("Threshold(%d): want %d, got %d", chunks, want, got)
		}
	}
}

func TestCandidates_OneCollection(t *testing.T) {
	t.Parallel()
	live := map[string]string{"a": "", "b": "", "c": ""}
	draining := map[string]string{"a": "", "b": "", "c": `, "draining": true`}
	on := func(a, b, c int) []onShard {
		return []onShard{{"a", a, false}, {"b", b, false}, {"c", c, false}}
	}
	tests := map[string]struct {
		shards map[string]string
		on     []onShard
		fields string
		want   string // "<chunk> <from>><to>"; empty if no move is expected
	}{
		"a difference of two below 20":             {live, on(4, 3, 2), "", "db.x-00 a>c"},
		"a difference of one below 20":             {live, on(4, 4, 3), "", ""},
		"a difference of three from 20 on":         {live, on(8, 7, 5), "", ""},
		"a difference of four from 20 on":          {live, on(9, 8, 5), "", "db.x-00 a>c"},
		"a difference of seven from 80 on":         {live, on(30, 27, 23), "", ""},
		"a difference of eight from 80 on":         {live, on(31, 27, 23), "", "db.x-00 a>c"},
		"equal givers: the lowest id":              {live, on(5, 5, 1), "", "db.x-00 a>c"},
		"equal takers: the lowest id":              {live, on(1, 1, 5), "", "db.x-02 c>a"},
		"a draining shard gives when all are even": {draining, on(3, 3, 1), "", "db.x-06 c>a"},
		"a draining shard gives before others":     {draining, on(9, 1, 1), "", "db.x-10 c>b"},
		"a draining shard never takes":             {draining, on(9, 8, 0), "", ""},
		"all shards are draining": {map[string]string{"a": `, "draining": true`, "b": `, "draining": 1`},
			[]onShard{{"a", 9, false}, {"b", 1, false}}, "", ""},
		"jumbo chunks stay": {live, []onShard{{"a", 3, true}, {"a", 4, false}, {"b", 1, false}},
			"", "db.x-03 a>c"},
		"only jumbo chunks: the next loaded gives": {live,
			[]onShard{{"a", 9, true}, {"b", 4, false}}, "", "db.x-09 b>c"},
		"jumbo chunks of a draining shard stay": {draining,
			[]onShard{{"a", 2, false}, {"b", 2, false}, {"c", 2, true}}, "", ""},
		"noBalance":   {live, on(9, 0, 0), `, "noBalance": true`, ""},
		"dropped":     {live, on(9, 0, 0), `, "dropped": true`, ""},
		"not dropped": {live, on(9, 0, 0), `, "dropped": false`, "db.x-00 a>b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := metadata(t, test.shards, layout{"db.x", test.fields, test.on})
			var got []string
			for _, m := range cluster.Candidates(c) {
				got = append(got, m.Chunk.Name()+" "+m.Chunk.Shard+">"+m.To)
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("want %q, got %q", test.want, got)
			}
		})
	}
}

// Candidates returns one migration for each collection, in the order of names.
func TestCandidates_ManyCollections_OneEach(t *testing.T) {
	t.Parallel()
	skewed := []onShard{{"a", 9, false}, {"b", 1, false}}
	even := []onShard{{"a", 3, false}, {"b", 3, false}}
	c := metadata(t, map[string]string{"a": "", "b": ""},
		layout{"db.z", "", skewed}, layout{"db.even", "", even}, layout{"db.a", "", skewed})
	got := cluster.Candidates(c)
	if len(got) != 2 || got[0].Chunk.NS != "db.a" || got[1].Chunk.NS != "db.z" {
		t.Errorf("want one of db.a and one of db.z, got %+v", got)
	}
	if none := cluster.Candidates(cluster.Cluster{}); none != nil {
		t.Errorf("an empty cluster has candidates: %+v", none)
	}
}
