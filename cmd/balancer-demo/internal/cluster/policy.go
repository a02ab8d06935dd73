package cluster

// Threshold is the difference between the most and the least loaded shard of a collection at
// which balancing begins: 2 below 20 chunks, 4 below 80, 8 from there on.
func Threshold(chunks int) int {
	switch {
	case chunks < 20:
		return 2
	case chunks < 80:
		return 4
	}
	return 8
}

// Candidates returns the moves of one round in a cluster that Assemble has made: at most one chunk
// of each collection, in the order of their names. Without candidates the cluster is as balanced as
// it can be.
//
// A draining shard comes first: it gives a chunk at any difference, and never receives. Otherwise
// the most loaded shard gives to the least loaded one when their difference has reached Threshold.
// Always the chunk with the lowest min moves; shards of the same load are taken in the order of
// their ids. Dropped collections, collections with noBalance and jumbo chunks are skipped.
//
// Source: mongos 2.4 to 3.2, balancer policy, as the manual describes it. There are two
// differences. mongos lowered the threshold to 2 after a round with a move; here the next round may
// run on another process, which does not know. And where the most loaded shard has only jumbo
// chunks, mongos stopped; here the next loaded one gives.
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

// candidate applies the policy to the chunks of one collection. Of equal shards the first wins.
func candidate(shards []Shard, chunks []Chunk) (Migration, bool) {
	count, movable := map[string]int{}, map[string]Chunk{} // movable is the lowest that is not jumbo
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
