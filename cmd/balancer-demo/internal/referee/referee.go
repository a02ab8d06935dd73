// Package referee checks, after a run, what the balancers and the server have recorded. It searches
// for balancers that worked at the same time, writes of a stale holder, and lost chunks. Its
// evidence is the server's stamps. It does not use the lock.
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
	Breach            Breach
	Subject, Evidence string // the subject is a process or a chunk
}

// A History is the input of the judge: the chunks before and after a run, and the run's records.
type History struct {
	Before, After []cluster.Chunk
	Rounds        []cluster.Round
	Changes       []cluster.Change
}

// Judge returns every violation in a history. The order of the slices does not matter, because
// Judge sorts them by the server's stamps.
//
// A round that is done lasts from Entered to Left. Of every other round only the start is known.
// Judge assumes that it lasts until a round with a higher fence starts. Every later move of its
// process is a stale write.
func Judge(h History) []Violation {
	h.Rounds, h.Changes = slices.Clone(h.Rounds), slices.Clone(h.Changes)
	slices.SortFunc(h.Rounds, func(a, b cluster.Round) int {
		return cmp.Or(a.Entered.Compare(b.Entered), cmp.Compare(a.Fence, b.Fence),
			strings.Compare(a.Process, b.Process))
	})
	slices.SortFunc(h.Changes, func(a, b cluster.Change) int {
		return cmp.Or(a.MovedAt.Compare(b.MovedAt), strings.Compare(a.Chunk, b.Chunk))
	})
	j := judge{History: h}
	j.rounds()
	j.moves()
	j.chunks()
	return j.found
}

// A judge has a History with the records in the order of the server's stamps.
type judge struct {
	History
	found []Violation
}

func (j *judge) report(kind Breach, subject, format string, args ...any) {
	j.found = append(j.found, Violation{kind, subject, fmt.Sprintf(format, args...)})
}

// It is a violation if two rounds overlap, or if a fence did not rise.
func (j *judge) rounds() {
	var open, highest cluster.Round // the earlier rounds with the latest end and the highest fence
	for _, r := range j.Rounds {
		began := fmt.Sprintf("began with fence %d at %s", r.Fence, at(r.Entered))
		if open.Outcome == cluster.Done && !r.Entered.After(open.Left) {
			j.report(Overlap, r.Process, "%s while %s was in its round with fence %d from %s to %s",
				began, open.Process, open.Fence, at(open.Entered), at(open.Left))
		}
		if highest.Process != "" && r.Fence <= highest.Fence {
			j.report(FenceNotRisen, r.Process, "%s after %s had begun with fence %d at %s",
				began, highest.Process, highest.Fence, at(highest.Entered))
		}
		if r.Outcome == cluster.Done && r.Left.After(open.Left) {
			open = r
		}
		if r.Fence > highest.Fence {
			highest = r
		}
	}
}

// It is a violation if a stale holder moved a chunk, or if a chunk was moved outside of a round.
func (j *judge) moves() {
	highest := map[string]cluster.Change{} // by chunk, the move with the highest fence
	for _, c := range j.Changes {
		what := fmt.Sprintf("%s moved it from %s to %s with fence %d at %s",
			c.Process, c.From, c.To, c.Fence, at(c.MovedAt))
		before := highest[c.Chunk]
		newer := slices.IndexFunc(j.Rounds, func(r cluster.Round) bool {
			return r.Fence > c.Fence && !r.Entered.After(c.MovedAt)
		})
		if c.Fence < before.Fence {
			j.report(StaleWrite, c.Chunk, "%s, after %s had moved it with fence %d at %s",
				what, before.Process, before.Fence, at(before.MovedAt))
		} else if newer >= 0 {
			r := j.Rounds[newer]
			j.report(StaleWrite, c.Chunk, "%s, after %s had begun its round with fence %d at %s",
				what, r.Process, r.Fence, at(r.Entered))
		}
		own := slices.IndexFunc(j.Rounds, func(r cluster.Round) bool {
			return r.Process == c.Process && r.Fence == c.Fence
		})
		if own < 0 {
			j.report(OutsideRound, c.Chunk, "%s, but has recorded no round with that fence", what)
		} else if r := j.Rounds[own]; c.MovedAt.Before(r.Entered) {
			j.report(OutsideRound, c.Chunk, "%s, before its round began at %s", what, at(r.Entered))
		} else if r.Outcome == cluster.Done && c.MovedAt.After(r.Left) {
			j.report(OutsideRound, c.Chunk, "%s, after its round ended at %s", what, at(r.Left))
		}
		if c.Fence > before.Fence {
			highest[c.Chunk] = c
		}
	}
}

// The chunks before a run are compared with those after it, and with the changelog.
func (j *judge) chunks() {
	was, seen, last := map[string]cluster.Chunk{}, map[string]bool{}, map[string]cluster.Change{}
	for _, chunk := range j.Before {
		was[chunk.Name()] = chunk
	}
	for _, c := range j.Changes {
		last[c.Chunk] = c
	}
	for _, chunk := range j.After {
		name := chunk.Name()
		old, ok := was[name]
		switch {
		case seen[name]:
			j.report(ChunkDuplicated, name, "is there twice")
		case !ok:
			j.report(ChunkDuplicated, name, "was not there before")
		case old.NS != chunk.NS || old.Min != chunk.Min || old.Max != chunk.Max:
			j.report(ChunkChanged, name, "was %s %s to %s, is %s %s to %s",
				old.NS, old.Min, old.Max, chunk.NS, chunk.Min, chunk.Max)
		}
		if seen[name] = true; ok {
			if c, moved := last[name]; moved {
				old.Shard, old.Fence = c.To, c.Fence
			}
			j.place(name, chunk, old)
		}
	}
	for _, chunk := range j.Before {
		if name := chunk.Name(); !seen[name] {
			j.report(ChunkLost, name, "was on %s", chunk.Shard)
		}
	}
}

// place compares the shard and the fence of a chunk with those in the changelog. If a process dies
// between a move and the changelog entry, the chunk has the fence of a round that is not done. That
// is not a violation.
func (j *judge) place(name string, chunk, logged cluster.Chunk) {
	died := func(r cluster.Round) bool { return r.Fence == chunk.Fence && r.Outcome != cluster.Done }
	switch {
	case chunk.Fence < logged.Fence:
		j.report(StaleWrite, name, "carries fence %d although it was moved with fence %d",
			chunk.Fence, logged.Fence)
	case chunk.Shard == logged.Shard && chunk.Fence == logged.Fence:
	case chunk.Fence > logged.Fence && slices.ContainsFunc(j.Rounds, died):
	default:
		j.report(ChunkMisplaced, name, "is on %s with fence %d, and by the changelog on %s with fence %d",
			chunk.Shard, chunk.Fence, logged.Shard, logged.Fence)
	}
}

// at formats a server's stamp as seconds and the count within that second.
func at(t bson.Timestamp) string { return fmt.Sprintf("%d.%d", t.T, t.I) }
