package cluster

import (
	"bytes"
	_ "embed"
)

//go:embed sample/cluster.json
var sample []byte

// Sample is a small cluster that is out of balance: five shards, one of them draining, eight
// collections (one dropped, one with noBalance), 612 chunks, and four of five on one shard. The
// policy needs 70 rounds for it. It is a cluster file like any other.
func Sample() (Cluster, error) { return Load("sample/cluster.json", bytes.NewReader(sample)) }
