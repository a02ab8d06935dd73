// Package referee checks, after a run, what the balancers and the server have recorded. It searches
// for balancers that worked at the same time, writes of a stale holder, and lost chunks. It is pure
// and independent of the lock. Its evidence is the server's stamps.
package referee

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
)

// A Breach is a kind of violation.
type Breach string

// The kinds of violations that Judge finds.
const (
	Overlap         Breach = "overlap"          // a round started before the end of another
	FenceNotRisen   Breach = "fence-not-risen"  // a fence is not above all earlier fences
	StaleWrite      Breach = "stale-write"      // a move after a move or round with a higher fence
	OutsideRound    Breach = "outside-round"    // a move before, after or without its round
	ChunkLost       Breach = "chunk-lost"       // a chunk is missing
	ChunkDuplicated Breach = "chunk-duplicated" // a chunk exists twice, or did not exist before
	ChunkChanged    Breach = "chunk-changed"    // a chunk has another namespace or other bounds
	ChunkMisplaced  Breach = "chunk-misplaced"  // a chunk is not on the shard in the changelog
)

// A Violation is a breach with its evidence.
type Violation struct {
	Breach   Breach `json:"breach"`
	Subject  string `json:"subject"` // a process or a chunk
	Evidence string `json:"evidence"`
}

// A History is the input of the judge: the chunks before and after a run, and the run's records.
type History struct {
	Before, After []cluster.Chunk
	Rounds        []cluster.Round
	Changes       []cluster.Change
}

// Judge returns every violation in a history. An empty result proves that the lock worked. Judge is
// pure: it ignores the order of the slices, and uses only the server's stamps.
//
// A finished round is an interval in which its process had the lock. Of an unfinished or lost round
// only the start is certain. It is taken to last until a round with a higher fence starts. Every
// later move of its process is a stale write.
func Judge(h History) []Violation {
	rounds := slices.Clone(h.Rounds)
	slices.SortFunc(rounds, func(a, b cluster.Round) int {
		return cmp.Or(a.Entered.Compare(b.Entered), cmp.Compare(a.Fence, b.Fence),
			strings.Compare(a.Process, b.Process))
	})
	changes := slices.Clone(h.Changes)
	slices.SortFunc(changes, func(a, b cluster.Change) int {
		return cmp.Or(a.MovedAt.Compare(b.MovedAt), strings.Compare(a.Chunk, b.Chunk))
	})
	found := judgeRounds(rounds)
	found = append(found, judgeMoves(rounds, changes)...)
	return append(found, judgeChunks(h, changes)...)
}

// judgeRounds finds rounds that overlap and fences that did not rise. rounds are in the order of
// Entered.
func judgeRounds(rounds []cluster.Round) []Violation {
	var found []Violation
	var open *cluster.Round    // the earlier finished round with the latest end
	var highest *cluster.Round // the earlier round with the highest fence
	for i := range rounds {
		r := &rounds[i]
		if open != nil && !r.Entered.After(open.Left) {
			found = append(found, Violation{Overlap, r.Process, fmt.Sprintf(
				"began with fence %d at %s while %s was in its round with fence %d from %s to %s",
				r.Fence, at(r.Entered), open.Process, open.Fence, at(open.Entered), at(open.Left))})
		}
		if highest != nil && r.Fence <= highest.Fence {
			found = append(found, Violation{FenceNotRisen, r.Process, fmt.Sprintf(
				"began with fence %d at %s after %s had begun with fence %d at %s",
				r.Fence, at(r.Entered), highest.Process, highest.Fence, at(highest.Entered))})
		}
		if r.Outcome == cluster.Done && (open == nil || r.Left.After(open.Left)) {
			open = r
		}
		if highest == nil || r.Fence > highest.Fence {
			highest = r
		}
	}
	return found
}

// judgeMoves finds moves by a stale holder and moves outside of a round. rounds and changes are in
// the order of the server's stamps.
func judgeMoves(rounds []cluster.Round, changes []cluster.Change) []Violation {
	var found []Violation
	highest := map[string]cluster.Change{} // by chunk, the move with the highest fence
	for _, c := range changes {
		what := fmt.Sprintf("%s moved it from %s to %s with fence %d at %s",
			c.Process, c.From, c.To, c.Fence, at(c.MovedAt))
		before, moved := highest[c.Chunk]
		newer := newerRound(rounds, c)
		switch {
		case moved && c.Fence < before.Fence:
			found = append(found, Violation{StaleWrite, c.Chunk, fmt.Sprintf(
				"%s, after %s had moved it with fence %d at %s",
				what, before.Process, before.Fence, at(before.MovedAt))})
		case newer != nil:
			found = append(found, Violation{StaleWrite, c.Chunk, fmt.Sprintf(
				"%s, after %s had begun its round with fence %d at %s",
				what, newer.Process, newer.Fence, at(newer.Entered))})
		}
		if problem := ownRound(rounds, c); problem != "" {
			found = append(found, Violation{OutsideRound, c.Chunk, what + ", " + problem})
		}
		if !moved || c.Fence > before.Fence {
			highest[c.Chunk] = c
		}
	}
	return found
}

// newerRound returns a round that has a higher fence than c and started before c, or nil.
func newerRound(rounds []cluster.Round, c cluster.Change) *cluster.Round {
	for i, r := range rounds {
		if r.Fence > c.Fence && !r.Entered.After(c.MovedAt) {
			return &rounds[i]
		}
	}
	return nil
}

// ownRound describes what is wrong with the round of change c. It returns "" if nothing is wrong.
func ownRound(rounds []cluster.Round, c cluster.Change) string {
	for _, r := range rounds {
		if r.Process != c.Process || r.Fence != c.Fence {
			continue
		}
		switch {
		case c.MovedAt.Before(r.Entered):
			return "before its round began at " + at(r.Entered)
		case r.Outcome == cluster.Done && c.MovedAt.After(r.Left):
			return "after its round ended at " + at(r.Left)
		}
		return ""
	}
	return "but has recorded no round with that fence"
}

// judgeChunks compares the chunks before a run with those after it. It also compares each chunk's
// shard with the changelog. changes are in the order of the server's stamps.
func judgeChunks(h History, changes []cluster.Change) []Violation {
	var found []Violation
	was, seen, last := map[string]cluster.Chunk{}, map[string]bool{}, map[string]cluster.Change{}
	for _, chunk := range h.Before {
		was[chunk.Name()] = chunk
	}
	for _, c := range changes {
		last[c.Chunk] = c
	}
	for _, chunk := range h.After {
		name := chunk.Name()
		old, ok := was[name]
		switch {
		case seen[name]:
			found = append(found, Violation{ChunkDuplicated, name, "is there twice"})
		case !ok:
			found = append(found, Violation{ChunkDuplicated, name, "was not there before"})
		case old.NS != chunk.NS || old.Min != chunk.Min || old.Max != chunk.Max:
			found = append(found, Violation{ChunkChanged, name, fmt.Sprintf(
				"was %s %s to %s, is %s %s to %s",
				old.NS, old.Min, old.Max, chunk.NS, chunk.Min, chunk.Max)})
		}
		if seen[name] = true; ok {
			found = append(found, judgePlace(h, chunk, old, last)...)
		}
	}
	for _, chunk := range h.Before {
		if name := chunk.Name(); !seen[name] {
			seen[name] = true
			found = append(found, Violation{ChunkLost, name, "was on " + chunk.Shard})
		}
	}
	return found
}

// judgePlace compares the shard of a chunk with its last change. If a process dies between a move
// and the changelog entry, the chunk has the fence of an unfinished round. That is not a violation.
func judgePlace(h History, chunk, old cluster.Chunk, last map[string]cluster.Change) []Violation {
	want, fence := old.Shard, old.Fence
	if c, moved := last[chunk.Name()]; moved {
		want, fence = c.To, c.Fence
	}
	died := func(r cluster.Round) bool { return r.Fence == chunk.Fence && r.Outcome != cluster.Done }
	switch {
	case chunk.Fence < fence:
		return []Violation{{StaleWrite, chunk.Name(), fmt.Sprintf(
			"carries fence %d although it was moved with fence %d", chunk.Fence, fence)}}
	case chunk.Shard == want && chunk.Fence == fence:
		return nil
	case chunk.Fence > fence && slices.ContainsFunc(h.Rounds, died):
		return nil
	}
	return []Violation{{ChunkMisplaced, chunk.Name(), fmt.Sprintf(
		"is on %s with fence %d, and by the changelog on %s with fence %d",
		chunk.Shard, chunk.Fence, want, fence)}}
}

// at formats a server's stamp as seconds and the count within that second.
func at(t bson.Timestamp) string { return fmt.Sprintf("%d.%d", t.T, t.I) }
