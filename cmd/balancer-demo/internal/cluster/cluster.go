// Package cluster parses the metadata of a sharded cluster and chooses the chunks that a balancer
// moves. The metadata are the documents of config.shards, config.collections and config.chunks. The
// package uses no clock and no server.
//
// The package follows the policy of mongos 2.4 to 3.2: see [Candidates]. It ignores zones, the
// sizes of chunks and the sizes of shards. A move only changes the metadata of one chunk and copies
// no documents. Load drops the fields that the policy does not use.
package cluster

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The names of the collections that the demo uses.
const (
	ShardsCollection      = "shards"
	CollectionsCollection = "collections"
	ChunksCollection      = "chunks"
	ChangelogCollection   = "changelog"
	RoundsCollection      = "rounds"
)

// A Cluster is the metadata of a sharded cluster. Each list is in the order of _id.
type Cluster struct {
	Shards      []Shard
	Collections []Collection
	Chunks      []Chunk
}

// A Shard is a document of config.shards.
type Shard struct {
	ID       string `bson:"_id"`
	Host     string `bson:"host"`
	Draining bool   `bson:"draining,omitempty"`
}

// A Collection is a document of config.collections.
type Collection struct {
	NS        string      `bson:"_id"` // "<database>.<collection>"
	Key       Text        `bson:"key,omitempty"`
	Dropped   bool        `bson:"dropped"`
	NoBalance bool        `bson:"noBalance,omitempty"`
	UUID      bson.Binary `bson:"uuid,omitempty"`
}

// A Chunk is a document of config.chunks.
type Chunk struct {
	ID    bson.RawValue `bson:"_id"`            // a string before MongoDB 4.4, an ObjectId since
	NS    string        `bson:"ns,omitempty"`   // Load sets it from UUID
	UUID  bson.Binary   `bson:"uuid,omitempty"` // in place of ns from MongoDB 5.0 on
	Min   Text          `bson:"min"`            // inclusive
	Max   Text          `bson:"max"`            // exclusive
	Shard string        `bson:"shard"`
	// Lastmod is the version of the chunk. Field T counts the migrations, and field I counts the
	// splits.
	Lastmod bson.Timestamp `bson:"lastmod"`
	Jumbo   bool           `bson:"jumbo,omitempty"`
	Fence   int64          `bson:"fence,omitempty"` // of the last move by the demo, or 0
}

// A Text is a document in canonical extended JSON. The demo stores a Text as a string, because the
// embedded config server cannot store MinKey or field names with dots. A Text can be decoded from a
// string or from a document.
type Text string

// UnmarshalBSONValue implements [bson.ValueUnmarshaler].
func (t *Text) UnmarshalBSONValue(kind byte, data []byte) error {
	v := bson.RawValue{Type: bson.Type(kind), Value: data}
	if v.Type != bson.TypeEmbeddedDocument && v.Type != bson.TypeString {
		return fmt.Errorf("it must be a document, not %v", v.Type)
	}
	*t = Text(text(v))
	return nil
}

// Name returns the _id of the chunk for display. A string is returned unchanged, and any other
// value as extended JSON. Two chunks of a cluster have different names.
func (c Chunk) Name() string { return text(c.ID) }

func text(v bson.RawValue) string {
	if s, ok := v.StringValueOK(); ok {
		return s
	}
	return v.String()
}

// Counts returns the number of chunks on each shard.
func (c Cluster) Counts() map[string]int {
	counts := map[string]int{}
	for _, chunk := range c.Chunks {
		counts[chunk.Shard]++
	}
	return counts
}
