package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/internal/test/assert"
)

func marshal(t *testing.T, doc any) bson.Raw {
	t.Helper()
	return assert.Value(bson.Marshal(doc))(t)
}

// wantError checks that err is not nil and contains all parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not contain %q", err, part)
		}
	}
}

// layout describes the chunks of one collection, in the order of keys.
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

// metadata builds a valid cluster with the shards a, b, c and so on. Parameter shards adds fields
// to the shards' documents, by id.
func metadata(t *testing.T, shards map[string]string, layouts ...layout) cluster.Cluster {
	t.Helper()
	var text strings.Builder
	for id, fields := range shards {
		fmt.Fprintf(&text, "{\"_id\": %q, \"host\": \"h\" %s}\n", id, fields)
	}
	for _, l := range layouts {
		fmt.Fprintf(&text, "{\"_id\": %q, \"key\": {\"x\": 1} %s}\n", l.ns, l.fields)
		total := 0
		for _, s := range l.on {
			total += s.chunks
		}
		n := 0
		for _, s := range l.on {
			for range s.chunks {
				low, high := fmt.Sprint(n), fmt.Sprint(n+1)
				if n == 0 {
					low = `{"$minKey": 1}`
				}
				if n == total-1 {
					high = `{"$maxKey": 1}`
				}
				fmt.Fprintf(&text, `{"_id": "%s-%d", "ns": "%s", "min": {"x": %s}, "max": {"x": %s}, `+
					`"shard": "%s", "jumbo": %t, "lastmod": {"$timestamp": {"t": %d, "i": 0}}}`+"\n",
					l.ns, n, l.ns, low, high, s.shard, s.jumbo, n+1)
				n++
			}
		}
	}
	return assert.Value(cluster.Load("fixture", strings.NewReader(text.String())))(t)
}
