package referee_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

func stamp(n int) bson.Timestamp { return bson.Timestamp{T: 100, I: uint32(n)} }

func round(process string, fence int64, entered, left int) cluster.Round {
	return cluster.Round{Process: process, Fence: fence, Entered: stamp(entered),
		Left: stamp(left), Outcome: cluster.Done}
}

// died returns an unfinished round of a process that died.
func died(process string, fence int64, entered int) cluster.Round {
	return cluster.Round{Process: process, Fence: fence, Entered: stamp(entered)}
}

func moved(process string, fence int64, at int, chunk, from, to string) cluster.Change {
	return cluster.Change{Details: cluster.Details{Process: process, Fence: fence, MovedAt: stamp(at),
		Chunk: chunk, From: from, To: to}}
}

// chunk returns the n-th chunk, on shard a and never moved.
func chunk(n int) cluster.Chunk {
	kind, id, _ := bson.MarshalValue(fmt.Sprintf("db.x-%d", n)) // a string can always be marshaled
	return cluster.Chunk{ID: bson.RawValue{Type: kind, Value: id}, NS: "db.x", Shard: "a",
		Min: cluster.Text(fmt.Sprint(n)), Max: cluster.Text(fmt.Sprint(n + 1)), Lastmod: stamp(n)}
}

// clean returns a history with every allowed event: rounds of several processes, a process that
// died before it logged its move, and a paused holder that noticed its loss.
func clean() referee.History {
	var before []cluster.Chunk
	for n := range 6 {
		before = append(before, chunk(n))
	}
	after := make([]cluster.Chunk, len(before))
	copy(after, before)
	set := func(i int, shard string, fence int64) { after[i].Shard, after[i].Fence = shard, fence }
	set(0, "c", 4)
	set(1, "b", 2)
	set(2, "c", 3) // moved by the process that died, without a log entry
	set(3, "b", 5)
	return referee.History{
		Before: before, After: after,
		Rounds: []cluster.Round{round("p2", 2, 10, 14), round("p1", 1, 1, 5), died("p3", 3, 20),
			died("p1", 4, 30), round("p2", 5, 40, 50)},
		Changes: []cluster.Change{
			moved("p1", 1, 3, "db.x-0", "a", "b"), moved("p2", 2, 12, "db.x-1", "a", "b"),
			moved("p1", 4, 31, "db.x-0", "b", "c"), moved("p2", 5, 45, "db.x-3", "a", "b"),
		},
	}
}

func TestJudge_CleanHistory_FindsNothing(t *testing.T) {
	t.Parallel()
	if found := referee.Judge(clean()); len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	if found := referee.Judge(referee.History{}); len(found) != 0 {
		t.Errorf("found %+v in an empty history", found)
	}
}

// breach is a violation to be found, and the change that adds it to a clean history.
type breach struct {
	spoil   func(*referee.History)
	kind    referee.Breach
	subject string
}

func addRound(r cluster.Round) func(*referee.History) {
	return func(h *referee.History) { h.Rounds = append(h.Rounds, r) }
}

func addMove(c cluster.Change) func(*referee.History) {
	return func(h *referee.History) { h.Changes = append(h.Changes, c) }
}

// roundBreaches returns breaches that are visible in the rounds alone.
func roundBreaches() map[string]breach {
	return map[string]breach{
		"a round within a round":     {addRound(round("p9", 6, 42, 44)), referee.Overlap, "p9"},
		"a round that begins in one": {addRound(round("p9", 6, 49, 60)), referee.Overlap, "p9"},
		"a round that begins as one ends": {addRound(round("p9", 6, 50, 60)),
			referee.Overlap, "p9"},
		"a round that dies within a round": {addRound(died("p9", 6, 42)), referee.Overlap, "p9"},
		"a round around a round":           {addRound(round("p9", 5, 39, 60)), referee.Overlap, "p2"},
		"two rounds of one process":        {addRound(round("p2", 6, 42, 44)), referee.Overlap, "p2"},
		"a long round and a later short one": {func(h *referee.History) {
			h.Rounds = []cluster.Round{round("p1", 1, 1, 60), round("p2", 2, 70, 71),
				round("p3", 3, 59, 60)}
		}, referee.Overlap, "p3"},
		"a fence that fell":   {addRound(round("p9", 4, 60, 61)), referee.FenceNotRisen, "p9"},
		"a fence that stayed": {addRound(round("p9", 5, 60, 61)), referee.FenceNotRisen, "p9"},
	}
}

// moveBreaches returns breaches that are visible in the moves.
func moveBreaches() map[string]breach {
	return map[string]breach{
		"a stale write on one chunk": {addMove(moved("p1", 4, 46, "db.x-3", "b", "a")),
			referee.StaleWrite, "db.x-3"},
		"a stale write elsewhere": {addMove(moved("p3", 3, 41, "db.x-4", "a", "c")),
			referee.StaleWrite, "db.x-4"},
		"a stale write as the next begins": {addMove(moved("p3", 3, 30, "db.x-4", "a", "c")),
			referee.StaleWrite, "db.x-4"},
		"a stale write only the chunk shows": {func(h *referee.History) { h.After[3].Fence = 4 },
			referee.StaleWrite, "db.x-3"},
		"a fence taken out of a chunk": {func(h *referee.History) { h.After[3].Fence = 0 },
			referee.StaleWrite, "db.x-3"},
		"a move before the round": {addMove(moved("p2", 5, 39, "db.x-5", "a", "b")),
			referee.OutsideRound, "db.x-5"},
		"a move after the round": {addMove(moved("p2", 5, 51, "db.x-5", "a", "b")),
			referee.OutsideRound, "db.x-5"},
		"a move without a round": {addMove(moved("p8", 5, 45, "db.x-5", "a", "b")),
			referee.OutsideRound, "db.x-5"},
	}
}

// chunkBreaches returns breaches that are visible in the chunks.
func chunkBreaches() map[string]breach {
	return map[string]breach{
		"a chunk gone": {func(h *referee.History) { h.After = h.After[:5] },
			referee.ChunkLost, "db.x-5"},
		"a chunk twice": {func(h *referee.History) { h.After = append(h.After, h.After[5]) },
			referee.ChunkDuplicated, "db.x-5"},
		"a chunk from nowhere": {func(h *referee.History) { h.Before = h.Before[:5] },
			referee.ChunkDuplicated, "db.x-5"},
		"other bounds": {func(h *referee.History) { h.After[5].Min = h.After[4].Min },
			referee.ChunkChanged, "db.x-5"},
		"another collection": {func(h *referee.History) { h.After[5].NS = "db.y" },
			referee.ChunkChanged, "db.x-5"},
		"a chunk elsewhere": {func(h *referee.History) { h.After[3].Shard = "c" },
			referee.ChunkMisplaced, "db.x-3"},
		"a move of a finished round not logged": {func(h *referee.History) {
			h.After[5].Shard, h.After[5].Fence = "b", 5
		}, referee.ChunkMisplaced, "db.x-5"},
		"a fence of no round": {func(h *referee.History) {
			h.After[5].Shard, h.After[5].Fence = "b", 77
		},
			referee.ChunkMisplaced, "db.x-5"},
	}
}

func TestJudge_EachBreach_IsFound(t *testing.T) {
	t.Parallel()
	tests := roundBreaches()
	maps.Copy(tests, moveBreaches())
	maps.Copy(tests, chunkBreaches())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clean()
			test.spoil(&h)
			found := referee.Judge(h)
			for _, v := range found {
				if v.Breach == test.kind && v.Subject == test.subject && v.Evidence != "" {
					return
				}
			}
			t.Errorf("want %s of %s, found %+v", test.kind, test.subject, found)
		})
	}
}

func TestJudge_Evidence_NamesBothSides(t *testing.T) {
	t.Parallel()
	h := clean()
	h.Rounds = append(h.Rounds, round("p9", 6, 42, 44))
	found := referee.Judge(h)
	if len(found) == 0 {
		t.Fatal("nothing found")
	}
	for _, part := range []string{"fence 6", "100.42", "p2", "fence 5", "100.40", "100.50"} {
		if !strings.Contains(found[0].Evidence, part) {
			t.Errorf("evidence %q does not name %q", found[0].Evidence, part)
		}
	}
}

// The verdict depends on the server's order of the records, not on the order of the slices. Judge
// does not modify the slices.
func TestJudge_AnyOrderOfRecords_SameVerdict(t *testing.T) {
	t.Parallel()
	h := clean()
	slices.Reverse(h.Rounds)
	slices.Reverse(h.Changes)
	first := h.Rounds[0].Fence
	if found := referee.Judge(h); len(found) != 0 {
		t.Errorf("found %+v", found)
	}
	if h.Rounds[0].Fence != first {
		t.Error("the judge sorted what belongs to the caller")
	}
}
