package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

type layout struct {
	ns     string
	fields string // additional fields of the collection's document
	on     []onShard
}

type onShard struct {
	shard  string
	chunks int
	jumbo  bool
}

// metadata builds a valid cluster. The keys of the map shards are the ids of the shards. A value
// contains further fields of the shard's document.
func metadata(t *testing.T, shards map[string]string, layouts ...layout) cluster.Cluster {
	t.Helper()
	var text strings.Builder
	for id, fields := range shards {
		fmt.Fprintf(&text, "{\"_id\": %q, \"host\": \"h\" %s}\n", id, fields)
	}
	for _, l := range layouts {
		fmt.Fprintf(&text, "{\"_id\": %q, \"key\": {\"x\": 1} %s}\n", l.ns, l.fields)
		n := 0
		for _, s := range l.on {
			for range s.chunks {
				fmt.Fprintf(&text, `{"_id": "%s-%02d", "ns": "%s", "min": {"x": %d}, "max": {"x": %d}, `+
					`"shard": "%s", "jumbo": %t}`+"\n", l.ns, n, l.ns, n, n+1, s.shard, s.jumbo)
				n++
			}
		}
	}
	return assert.Value(cluster.Load("fixture", strings.NewReader(text.String())))(t)
}
