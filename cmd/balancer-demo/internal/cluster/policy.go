package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// chunkMB is the size that a chunk is taken to have when a shard has a maxSize: the chunk size of
// mongos before MongoDB 6.0. The metadata does not say how large a chunk is.
const chunkMB = 64

// A Migration is one chunk that has to go from one shard to another, and why.
type Migration struct {
	Chunk Chunk
	From  string
	To    string
	Why   string
}

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

// Candidates returns what one round should move: at most one chunk of each collection, in the
// order of their names. None means that the cluster is balanced, as far as it can be.
//
// A draining shard comes first: it gives whatever the difference, and never receives. Otherwise
// the most loaded shard gives to the least loaded one when their difference has reached
// Threshold. It is always the chunk with the lowest min that moves; shards of the same load are
// taken in the order of their ids. Dropped collections, collections with noBalance, jumbo chunks
// and receiving shards that are full (maxSize) are left out.
//
// Source: mongos 2.4 to 3.2, balancer policy, as the manual describes it. It differs in two
// things. mongos lowered the threshold to 2 after a round that had moved something; here the next
// round may be another process's, which does not know. And where the most loaded shard has only
// jumbo chunks, mongos gave up; here the next loaded one gives.
func Candidates(c Cluster) []Migration {
	chunks := c.sortedChunks()
	total := map[string]int{}
	for _, chunk := range c.Chunks {
		total[chunk.Shard]++
	}
	collections := slices.Clone(c.Collections)
	slices.SortFunc(collections, func(a, b Collection) int { return strings.Compare(a.NS, b.NS) })

	var found []Migration
	for _, n := range collections {
		if n.Dropped || n.NoBalance {
			continue
		}
		if m, ok := candidate(loads(c.Shards, chunks[n.NS], total), len(chunks[n.NS])); ok {
			found = append(found, m)
		}
	}
	return found
}

// load is what a shard has of one collection.
type load struct {
	shard   Shard
	count   int
	full    bool
	movable *Chunk // the lowest chunk that is not jumbo
}

// loads returns the load of every shard in the order of ids. chunks are sorted by min.
func loads(shards []Shard, chunks []Chunk, total map[string]int) []load {
	byID := map[string]*load{}
	all := make([]load, len(shards))
	for i, s := range shards {
		full := s.MaxSize > 0 && int64(total[s.ID])*chunkMB >= s.MaxSize
		all[i] = load{shard: s, full: full}
		byID[s.ID] = &all[i]
	}
	for i, chunk := range chunks {
		l := byID[chunk.Shard]
		if l == nil {
			continue // Validate reports it; nobody can move it
		}
		l.count++
		if l.movable == nil && !chunk.Jumbo {
			l.movable = &chunks[i]
		}
	}
	slices.SortFunc(all, func(a, b load) int { return strings.Compare(a.shard.ID, b.shard.ID) })
	return all
}

// candidate applies the policy to one collection of that many chunks. all is in the order of ids,
// so that of equal ones the first wins.
func candidate(all []load, chunks int) (Migration, bool) {
	var drained, most, least *load
	for i := range all {
		l := &all[i]
		switch {
		case l.shard.Draining && l.movable != nil && drained == nil:
			drained = l
		case !l.shard.Draining && l.movable != nil && (most == nil || l.count > most.count):
			most = l
		}
		if !l.shard.Draining && !l.full && (least == nil || l.count < least.count) {
			least = l
		}
	}
	if least == nil {
		return Migration{}, false
	}
	if drained != nil {
		why := fmt.Sprintf("shard is draining, %d chunks left", drained.count)
		return Migration{*drained.movable, drained.shard.ID, least.shard.ID, why}, true
	}
	threshold := Threshold(chunks)
	if most == nil || most.count-least.count < threshold {
		return Migration{}, false
	}
	why := fmt.Sprintf("%d chunks against %d, threshold %d", most.count, least.count, threshold)
	return Migration{*most.movable, most.shard.ID, least.shard.ID, why}, true
}
