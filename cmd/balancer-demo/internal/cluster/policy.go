package cluster

// A Migration is a chunk and the shard to which the chunk moves.
type Migration struct {
	Chunk Chunk
	To    string
}

// Threshold returns the least imbalance at which a chunk of a collection moves. The imbalance is
// the number of chunks on the most loaded shard minus the number on the least loaded shard.
// Threshold returns 2 for a collection of fewer than 20 chunks, 4 for fewer than 80, and 8
// otherwise.
func Threshold(chunks int) int {
	switch {
	case chunks < 20:
		return 2
	case chunks < 80:
		return 4
	}
	return 8
}

// Candidates returns the moves of one round, at most one for each collection. The moves are in the
// order of the collections' names. If there is no move, the policy cannot balance the cluster any
// further.
//
// A chunk moves to the least loaded shard that is not draining. The chunk comes from a draining
// shard, if one has a chunk that can move. Otherwise it comes from the most loaded shard, and the
// loads of the two shards must differ by at least Threshold. The load of a shard is its number of
// chunks of the collection. If several shards qualify, Candidates takes the shard with the lowest
// id.
//
// The chunk with the lowest _id moves. A jumbo chunk never moves. Candidates ignores dropped
// collections and collections with noBalance.
//
// This policy is the balancer policy of mongos 2.4 to 3.2, as the manual describes it, with three
// differences:
//   - mongos moved the chunk with the lowest min.
//   - mongos lowered the threshold to 2 after a round with a move. Candidates does not,
//     because another process may run the next round and does not know of the move.
//   - mongos stopped if the most loaded shard had only jumbo chunks. Candidates then uses
//     the next most loaded shard.
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

// candidate returns the move of one collection, or false if no chunk moves.
func candidate(shards []Shard, chunks []Chunk) (Migration, bool) {
	count, movable := map[string]int{}, map[string]Chunk{} // movable: the first that is not jumbo
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
	return Migration{movable[from], least}, from != "" && least != ""
}
