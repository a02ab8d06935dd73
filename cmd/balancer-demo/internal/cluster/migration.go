package cluster

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Migration is one move of a chunk to another shard.
type Migration struct {
	Chunk    Chunk
	From, To string
}

// Filter returns a filter for the chunk in config.chunks. It matches while the chunk is on shard
// m.From and no holder with a higher fence has moved it. Otherwise the holder is stale.
func (m Migration) Filter(fence int64) bson.M {
	return bson.M{"_id": m.Chunk.ID, "shard": m.From, "$or": bson.A{
		bson.M{"fence": bson.M{"$exists": false}}, bson.M{"fence": bson.M{"$lte": fence}},
	}}
}

// Update returns the update of a move: the new shard, the mover's fence, the next version
// (NextVersion), and movedAt. The server writes movedAt, a Timestamp, in the same step. Use
// findOneAndUpdate and return the document after the update: the changelog needs movedAt.
func (m Migration) Update(fence int64, version bson.Timestamp) bson.M {
	return bson.M{"$set": bson.M{"shard": m.To, "fence": fence, "lastmod": version},
		"$currentDate": stampOf("movedAt")}
}

// NextVersion returns the version for the next move in a collection. It counts one migration more
// than the highest version in the collection, and no split. mongos also raised the version of a
// chunk on the giving shard. This package does not, because no router uses these versions.
func (c Cluster) NextVersion(ns string) bson.Timestamp {
	var highest uint32
	for _, chunk := range c.Chunks {
		if chunk.NS == ns {
			highest = max(highest, chunk.Lastmod.T)
		}
	}
	return bson.Timestamp{T: highest + 1}
}

// Moved is the value of the field "what" in the changelog entry of a completed move.
const Moved = "moveChunk.commit"

// A Change is an entry of config.changelog about a move, in the shape of mongos' entries.
type Change struct {
	ID         string    `bson:"_id"`        // "<host>-<time>-<serial>"
	Server     string    `bson:"server"`     // "<host>:<pid>" of the writer, which has no address
	ClientAddr string    `bson:"clientAddr"` // the same as Server
	Time       time.Time `bson:"time"`       // the writer's clock, informational
	What       string    `bson:"what"`
	NS         string    `bson:"ns"`
	Details    `bson:"details"`
}

// Details describe the move. mongos' entries have no Chunk, Process, Fence or MovedAt.
type Details struct {
	Min     Text           `bson:"min"`
	Max     Text           `bson:"max"`
	From    string         `bson:"from"`
	To      string         `bson:"to"`
	Chunk   string         `bson:"chunk"` // the chunk's Name
	Process string         `bson:"process"`
	Fence   int64          `bson:"fence"`
	MovedAt bson.Timestamp `bson:"movedAt"` // the server's stamp in the chunk
}

// Changed returns the changelog entry for a move that a process has made with its fence.
func (m Migration) Changed(process string, fence int64, at bson.Timestamp,
	host string, pid int, now time.Time) Change {
	server := fmt.Sprintf("%s:%d", host, pid)
	return Change{
		ID: fmt.Sprintf("%s-%s-%s", host, now.UTC().Format("2006-01-02T15:04:05.000-0700"),
			bson.NewObjectID().Hex()),
		Server: server, ClientAddr: server, Time: now, What: Moved, NS: m.Chunk.NS,
		Details: Details{Min: m.Chunk.Min, Max: m.Chunk.Max, From: m.From, To: m.To,
			Chunk: m.Chunk.Name(), Process: process, Fence: fence, MovedAt: at},
	}
}

func stampOf(field string) bson.M { return bson.M{field: bson.M{"$type": "timestamp"}} }
