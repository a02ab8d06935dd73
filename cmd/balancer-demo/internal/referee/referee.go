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
	Overlap        Breach = "overlap"         // a round started before the end of another
	FenceNotRisen  Breach = "fence-not-risen" // a fence is not above all earlier fences
	StaleWrite     Breach = "stale-write"     // a move after a round with a higher fence began
	OutsideRound   Breach = "outside-round"   // a move before or after its round
	ChunkLost      Breach = "chunk-lost"      // a chunk is missing
	ChunkMisplaced Breach = "chunk-misplaced" // a chunk is not on the shard of its last recorded move
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
}

// Judge returns every violation in a history. It sorts a copy of the rounds by the server's
// Timestamps, so their order in h does not matter.
//
// If Left of a round is zero, the end of the round is unknown. Judge assumes that such a round ends
// when a round with a higher fence starts. A later move with the lower fence is a StaleWrite.
func Judge(h History) []Violation {
	h.Rounds = slices.Clone(h.Rounds)
	slices.SortFunc(h.Rounds, func(a, b cluster.Round) int {
		return cmp.Or(a.Entered.Compare(b.Entered), cmp.Compare(a.Fence, b.Fence),
			strings.Compare(a.Process, b.Process))
	})
	j := judge{History: h}
	j.rounds()
	j.moves()
	j.chunks()
	return j.found
}

// A judge is a History whose rounds are in the order of the server's Timestamps.
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
		if !r.Entered.After(open.Left) {
			j.report(Overlap, r.Process, "%s while %s was in its round with fence %d from %s to %s",
				began, open.Process, open.Fence, at(open.Entered), at(open.Left))
		}
		if highest.Process != "" && r.Fence <= highest.Fence {
			j.report(FenceNotRisen, r.Process, "%s after %s began with fence %d at %s",
				began, highest.Process, highest.Fence, at(highest.Entered))
		}
		if r.Left.After(open.Left) {
			open = r
		}
		if r.Fence > highest.Fence {
			highest = r
		}
	}
}

// moves reports moves of a stale holder, and moves outside of a round.
func (j *judge) moves() {
	for _, r := range j.Rounds {
		for _, m := range r.Moves {
			what := fmt.Sprintf("%s moved it to %s with fence %d at %s", r.Process, m.To, r.Fence, at(m.At))
			newer := slices.IndexFunc(j.Rounds, func(o cluster.Round) bool {
				return o.Fence > r.Fence && !o.Entered.After(m.At)
			})
			if newer >= 0 {
				o := j.Rounds[newer]
				j.report(StaleWrite, m.Chunk, "%s, after %s began its round with fence %d at %s",
					what, o.Process, o.Fence, at(o.Entered))
			}
			if m.At.Before(r.Entered) || !r.Left.IsZero() && m.At.After(r.Left) {
				j.report(OutsideRound, m.Chunk, "%s, in its round from %s to %s", what, at(r.Entered),
					at(r.Left))
			}
		}
	}
}

// chunks compares the chunks after the run with the chunks before it, and with the recorded moves.
func (j *judge) chunks() {
	after, moved := map[string]cluster.Chunk{}, map[string]cluster.Chunk{}
	for _, chunk := range j.After {
		after[chunk.Name()] = chunk
	}
	for _, r := range j.Rounds {
		for _, m := range r.Moves {
			moved[m.Chunk] = cluster.Chunk{Shard: m.To, Fence: r.Fence}
		}
	}
	for _, recorded := range j.Before {
		name := recorded.Name()
		if last, ok := moved[name]; ok {
			recorded = last
		}
		if chunk, found := after[name]; found {
			j.place(name, chunk, recorded)
		} else {
			j.report(ChunkLost, name, "was on %s", recorded.Shard)
		}
	}
}

// place compares the shard and the fence of a chunk with the last recorded move of the chunk. If a
// process dies between a move and its record, the chunk has the fence of an unfinished round. This
// is not a violation.
func (j *judge) place(name string, chunk, recorded cluster.Chunk) {
	died := func(r cluster.Round) bool { return r.Fence == chunk.Fence && r.Left.IsZero() }
	switch {
	case chunk.Fence < recorded.Fence:
		j.report(StaleWrite, name, "has fence %d, but was moved with fence %d",
			chunk.Fence, recorded.Fence)
	case chunk.Shard == recorded.Shard && chunk.Fence == recorded.Fence:
	case chunk.Fence > recorded.Fence && slices.ContainsFunc(j.Rounds, died):
	default:
		j.report(ChunkMisplaced, name, "is on %s with fence %d, by the records on %s with fence %d",
			chunk.Shard, chunk.Fence, recorded.Shard, recorded.Fence)
	}
}

// at formats a Timestamp of the server as its seconds and its counter.
func at(t bson.Timestamp) string { return fmt.Sprintf("%d.%d", t.T, t.I) }
