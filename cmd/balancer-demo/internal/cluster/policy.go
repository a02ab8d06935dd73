package cluster

import "go.mongodb.org/mongo-driver/v2/bson"

// A Migration is one move of a chunk to another shard.
type Migration struct {
	Chunk    Chunk
	From, To string
}

// NextVersion returns the version for the next move in a collection. It counts one migration more
// than the highest version in the collection, and no split. mongos also raised the version of a
// chunk on the giving shard, for its routers.
func (c Cluster) NextVersion(ns string) bson.Timestamp {
	var highest uint32
	for _, chunk := range c.Chunks {
		if chunk.NS == ns {
			highest = max(highest, chunk.Lastmod.T)
		}
	}
	return bson.Timestamp{T: highest + 1}
}

// Threshold returns the least difference, in chunks, at which the most loaded shard gives a chunk
// to the least loaded shard. It is 2 for a collection of fewer than 20 chunks, 4 for fewer than 80,
// and 8 otherwise.
func Threshold(chunks int) int {
	switch {
	case chunks < 20:
		return 2
	case chunks < 80:
		return 4
	}
	return 8
}

// Candidates returns the moves of one round: at most one chunk of each collection, in the order of
// the collections' names. Without candidates the cluster is balanced as well as possible.
//
// If a shard is draining, it gives a chunk. It never receives one. If no shard is draining, the
// most loaded shard gives a chunk to the least loaded shard, provided that their difference is at
// least Threshold. The chunk with the lowest _id moves. Shards with the same load are taken in the
// order of their ids. Dropped collections, collections with noBalance and jumbo chunks are skipped.
//
// The source is the balancer policy of mongos 2.4 to 3.2, as the manual describes it. There are
// three differences:
//   - mongos moved the chunk with the lowest min.
//   - mongos lowered the threshold to 2 after a round with a move. Here the next round may run in
//     another process, which does not know of that move.
//   - mongos stopped if the most loaded shard had only jumbo chunks. Here the next most loaded
//     shard gives a chunk.
func Candidates(c Cluster) []Migration {
	chunks := map[string][]Chunk{}
	for _, chunk := range c.Chunks {
		chunks[chunk.NS] = append(chunks[chunk.NS], chunk)
	}
	var found []Migration
	for _, n := range c.Collections {
		if n.Dropped || n.NoBalance {
			continue
		}
		if m, ok := candidate(c.Shards, chunks[n.NS]); ok {
			found = append(found, m)
		}
	}
	return found
}

// candidate returns the move in one collection, or false without a move. If several shards have the
// same load, it uses the first of them.
func candidate(shards []Shard, chunks []Chunk) (Migration, bool) {
	count, movable := map[string]int{}, map[string]Chunk{} // movable: the lowest not jumbo
	for _, chunk := range chunks {
		count[chunk.Shard]++
		if _, lower := movable[chunk.Shard]; !lower && !chunk.Jumbo {
			movable[chunk.Shard] = chunk
		}
	}
	var drained, most, least string
	for _, s := range shards {
		_, gives := movable[s.ID]
		if s.Draining {
			if gives && drained == "" {
				drained = s.ID
			}
			continue
		}
		if gives && (most == "" || count[s.ID] > count[most]) {
			most = s.ID
		}
		if least == "" || count[s.ID] < count[least] {
			least = s.ID
		}
	}
	from := drained
	if from == "" && count[most]-count[least] >= Threshold(len(chunks)) {
		from = most
	}
	return Migration{movable[from], from, least}, from != "" && least != ""
}
