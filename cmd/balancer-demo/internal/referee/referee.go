// Package referee checks the records of a finished run. It reports balancers that worked at the
// same time, writes of a stale holder, and lost chunks. The package does not use the lock. It
// relies on the Timestamps that the server wrote into the records.
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

// The kinds of violations that Judge reports.
const (
	Overlap         Breach = "overlap"          // a round started before the end of another
	FenceNotRisen   Breach = "fence-not-risen"  // a fence is not above all earlier fences
	StaleWrite      Breach = "stale-write"      // a move after a round with a higher fence began
	OutsideRound    Breach = "outside-round"    // a move before, after or without its round
	ChunkLost       Breach = "chunk-lost"       // a chunk is missing
	ChunkDuplicated Breach = "chunk-duplicated" // a chunk exists twice, or did not exist before
	ChunkChanged    Breach = "chunk-changed"    // a chunk has another namespace or other bounds
	ChunkMisplaced  Breach = "chunk-misplaced"  // a chunk is not on the shard of its changelog entry
)

// A Violation is a breach with its evidence.
type Violation struct {
	Breach            Breach
	Subject, Evidence string // the subject is a process or a chunk
}

// A History is the input of Judge: the chunks before and after a run, and the run's records.
type History struct {
	Before, After []cluster.Chunk
	Rounds        []cluster.Round
	Changes       []cluster.Change
}

// Judge returns every violation in a history. It sorts copies of the records by the server's
// Timestamps, so their order in h does not matter.
//
// A round with the Outcome Done lasts from Entered to Left. The end of any other round is unknown.
// Judge assumes that such a round ends when a round with a higher fence starts. A later move with
// the lower fence is a StaleWrite.
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

// A judge is a History whose records are in the order of the server's Timestamps.
type judge struct {
	History
	found []Violation
}

func (j *judge) report(kind Breach, subject, format string, args ...any) {
	j.found = append(j.found, Violation{kind, subject, fmt.Sprintf(format, args...)})
}

// rounds reports overlapping rounds, and each round whose fence is not above all earlier fences.
func (j *judge) rounds() {
	var open, highest cluster.Round // the earlier rounds with the latest end and the highest fence
	for _, r := range j.Rounds {
		began := fmt.Sprintf("began with fence %d at %s", r.Fence, at(r.Entered))
		if open.Outcome == cluster.Done && !r.Entered.After(open.Left) {
			j.report(Overlap, r.Process, "%s while %s was in its round with fence %d from %s to %s",
				began, open.Process, open.Fence, at(open.Entered), at(open.Left))
		}
		if highest.Process != "" && r.Fence <= highest.Fence {
			j.report(FenceNotRisen, r.Process, "%s after %s began with fence %d at %s",
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

// moves reports moves of a stale holder, and moves outside of a round.
func (j *judge) moves() {
	for _, c := range j.Changes {
		what := fmt.Sprintf("%s moved it from %s to %s with fence %d at %s",
			c.Process, c.From, c.To, c.Fence, at(c.MovedAt))
		newer := slices.IndexFunc(j.Rounds, func(r cluster.Round) bool {
			return r.Fence > c.Fence && !r.Entered.After(c.MovedAt)
		})
		if newer >= 0 {
			r := j.Rounds[newer]
			j.report(StaleWrite, c.Chunk, "%s, after %s began its round with fence %d at %s",
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
	}
}

// chunks compares the chunks after the run with the chunks before it, and with the changelog.
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
			j.report(ChunkDuplicated, name, "exists twice")
		case !ok:
			j.report(ChunkDuplicated, name, "did not exist before")
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

// place compares the shard and the fence of a chunk with the last changelog entry of the chunk. If
// a process dies between a move and its changelog entry, the chunk has the fence of an unfinished
// round. This is not a violation.
func (j *judge) place(name string, chunk, logged cluster.Chunk) {
	died := func(r cluster.Round) bool { return r.Fence == chunk.Fence && r.Outcome != cluster.Done }
	switch {
	case chunk.Fence < logged.Fence:
		j.report(StaleWrite, name, "has fence %d, but was moved with fence %d",
			chunk.Fence, logged.Fence)
	case chunk.Shard == logged.Shard && chunk.Fence == logged.Fence:
	case chunk.Fence > logged.Fence && slices.ContainsFunc(j.Rounds, died):
	default:
		j.report(ChunkMisplaced, name, "is on %s with fence %d, in the changelog on %s with fence %d",
			chunk.Shard, chunk.Fence, logged.Shard, logged.Fence)
	}
}

// at formats a Timestamp of the server as its seconds and its counter.
func at(t bson.Timestamp) string { return fmt.Sprintf("%d.%d", t.T, t.I) }
