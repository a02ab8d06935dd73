// Package cluster parses the metadata of a sharded cluster and chooses the chunks that a balancer
// moves. The metadata are the documents of config.shards, config.collections and config.chunks. The
// package uses no clock and no server.
//
// The package follows the policy of mongos 2.4 to 3.2: see [Candidates]. It ignores zones, the
// sizes of chunks and the sizes of shards. A move only changes the metadata of one chunk and copies
// no documents. Load drops the fields that the policy does not use.
package cluster

import "go.mongodb.org/mongo-driver/v2/bson"

// A Cluster is the metadata of a sharded cluster. Each list is in the order of _id.
type Cluster struct {
	Shards      []Shard
	Collections []Collection
	Chunks      []Chunk
}

// A Shard is a document of config.shards.
type Shard struct {
	ID       string `bson:"_id"`
	Draining bool   `bson:"draining,omitempty"`
}

// A Collection is a document of config.collections.
type Collection struct {
	NS        string      `bson:"_id"` // "<database>.<collection>"
	Dropped   bool        `bson:"dropped"`
	NoBalance bool        `bson:"noBalance,omitempty"`
	UUID      bson.Binary `bson:"uuid,omitempty"`
}

// A Chunk is a document of config.chunks.
type Chunk struct {
	ID    bson.RawValue `bson:"_id"`            // a string before MongoDB 4.4, an ObjectId since
	NS    string        `bson:"ns,omitempty"`   // Load sets it from UUID
	UUID  bson.Binary   `bson:"uuid,omitempty"` // in place of ns from MongoDB 5.0 on
	Shard string        `bson:"shard"`
	Jumbo bool          `bson:"jumbo,omitempty"`
	Fence int64         `bson:"fence,omitempty"` // of the last move by the demo, or 0
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

// A Round is the record of one round of a balancer. Entered, Left and the times of the moves are
// Timestamps of the server.
//
// Package referee assumes that the process held the lock at Entered and at Left. A process
// therefore gets a Timestamp first, and then checks that it still holds the lock. In the reverse
// order, the process could lose the lock between the check and the Timestamp, and package referee
// would report a false violation.
type Round struct {
	ID      string         `bson:"_id"` // "<process>/<fence>", as a process runs one round per fence
	Number  int            `bson:"number"`
	Process string         `bson:"process"`
	Fence   int64          `bson:"fence"`
	Entered bson.Timestamp `bson:"entered"`
	Left    bson.Timestamp `bson:"left"` // zero if the process died, lost its lock or works
	Moves   []Move         `bson:"moves"`
}

// A Move is a move of a chunk, as recorded in a round.
type Move struct {
	Chunk string         `bson:"chunk"` // the chunk's Name
	To    string         `bson:"to"`
	At    bson.Timestamp `bson:"at"`
}
