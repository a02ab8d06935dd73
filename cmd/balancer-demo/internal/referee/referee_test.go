package referee_test

import (
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

func stamp(n int) bson.Timestamp { return bson.Timestamp{T: 100, I: uint32(n)} }

// round returns a round with moves. If left is 0, the process died.
func round(process string, fence int64, entered, left int, moves ...cluster.Move) cluster.Round {
	r := cluster.Round{Process: process, Fence: fence, Entered: stamp(entered), Moves: moves}
	if left > 0 {
		r.Left = stamp(left)
	}
	return r
}

func died(process string, fence int64, entered int, moves ...cluster.Move) cluster.Round {
	return round(process, fence, entered, 0, moves...)
}

func moved(at int, chunk, to string) cluster.Move {
	return cluster.Move{Chunk: chunk, To: to, At: stamp(at)}
}

// chunk returns chunk n, which is on shard a and was never moved.
func chunk(n int) cluster.Chunk {
	kind, id, _ := bson.MarshalValue(fmt.Sprintf("db.x-%d", n)) // a string can always be marshaled
	return cluster.Chunk{ID: bson.RawValue{Type: kind, Value: id}, NS: "db.x", Shard: "a"}
}

// clean returns a history without a violation. It contains rounds of several processes, a process
// that died before it recorded its move, and a paused holder that detected the loss of its lock.
func clean() referee.History {
	var before []cluster.Chunk
	for n := range 6 {
		before = append(before, chunk(n))
	}
	after := slices.Clone(before)
	set := func(i int, shard string, fence int64) { after[i].Shard, after[i].Fence = shard, fence }
	set(0, "c", 4)
	set(1, "b", 2)
	set(2, "c", 3) // moved by the process that died, without a record
	set(3, "b", 5)
	return referee.History{
		Before: before, After: after,
		Rounds: []cluster.Round{
			round("p2", 2, 10, 14, moved(12, "db.x-1", "b")), round("p1", 1, 1, 5, moved(3, "db.x-0", "b")),
			died("p3", 3, 20), died("p1", 4, 30, moved(31, "db.x-0", "c")),
			round("p2", 5, 40, 50, moved(45, "db.x-3", "b")),
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

func found(t *testing.T, name string, h referee.History, kind referee.Breach, subject string) {
	t.Helper()
	all := referee.Judge(h)
	if !slices.ContainsFunc(all, func(v referee.Violation) bool {
		return v.Breach == kind && v.Subject == subject && v.Evidence != ""
	}) {
		t.Errorf("%s: want %s of %s, found %+v", name, kind, subject, all)
	}
}

func TestJudge_BreachOfRounds_IsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		added   cluster.Round
		kind    referee.Breach
		subject string
	}{
		"a round within a round":           {round("p9", 6, 42, 44), referee.Overlap, "p9"},
		"a round that begins in one":       {round("p9", 6, 49, 60), referee.Overlap, "p9"},
		"a round that begins as one ends":  {round("p9", 6, 50, 60), referee.Overlap, "p9"},
		"a round that dies within a round": {died("p9", 6, 42), referee.Overlap, "p9"},
		"a round around a round":           {round("p9", 5, 39, 60), referee.Overlap, "p2"},
		"two rounds of one process":        {round("p2", 6, 42, 44), referee.Overlap, "p2"},
		"a fence that fell":                {round("p9", 4, 60, 61), referee.FenceNotRisen, "p9"},
		"a fence that stayed":              {round("p9", 5, 60, 61), referee.FenceNotRisen, "p9"},
	} {
		h := clean()
		h.Rounds = append(h.Rounds, test.added)
		found(t, name, h, test.kind, test.subject)
	}
	found(t, "a long round and a later short one", referee.History{Rounds: []cluster.Round{
		round("p1", 1, 1, 60), round("p2", 2, 70, 71), round("p3", 3, 59, 60)}}, referee.Overlap, "p3")
}

func TestJudge_BreachOfMoves_IsFound(t *testing.T) {
	t.Parallel()
	const stale, outside = referee.StaleWrite, referee.OutsideRound
	for name, test := range map[string]struct {
		round int // index of the round in clean
		added cluster.Move
		kind  referee.Breach
	}{
		"a stale write on one chunk":       {3, moved(46, "db.x-3", "a"), stale},
		"a stale write elsewhere":          {2, moved(41, "db.x-4", "c"), stale},
		"a stale write as the next begins": {2, moved(30, "db.x-4", "c"), stale},
		"a move before the round":          {4, moved(39, "db.x-5", "b"), outside},
		"a move after the round":           {4, moved(51, "db.x-5", "b"), outside},
	} {
		h := clean()
		h.Rounds[test.round].Moves = append(h.Rounds[test.round].Moves, test.added)
		found(t, name, h, test.kind, test.added.Chunk)
	}
}

func TestJudge_BreachOfChunks_IsFound(t *testing.T) {
	t.Parallel()
	set := func(i int, shard string, fence int64) func(*referee.History) {
		return func(h *referee.History) { h.After[i].Shard, h.After[i].Fence = shard, fence }
	}
	for name, test := range map[string]struct {
		spoil   func(*referee.History)
		kind    referee.Breach
		subject string
	}{
		"a stale write":                {set(3, "b", 4), referee.StaleWrite, "db.x-3"},
		"a fence taken out of a chunk": {set(3, "b", 0), referee.StaleWrite, "db.x-3"},
		"a chunk elsewhere":            {set(3, "c", 5), referee.ChunkMisplaced, "db.x-3"},
		"a move without a record":      {set(5, "b", 5), referee.ChunkMisplaced, "db.x-5"},
		"a fence of no round":          {set(5, "b", 77), referee.ChunkMisplaced, "db.x-5"},
		"a chunk gone": {func(h *referee.History) { h.After = h.After[:5] },
			referee.ChunkLost, "db.x-5"},
	} {
		h := clean()
		test.spoil(&h)
		found(t, name, h, test.kind, test.subject)
	}
}

// The evidence of an overlap names both processes with their fences and times.
func TestJudge_Evidence_NamesBothSides(t *testing.T) {
	t.Parallel()
	h := clean()
	h.Rounds = append(h.Rounds, round("p9", 6, 42, 44))
	const want = "began with fence 6 at 100.42 while p2 was in its round with fence 5 from 100.40 " +
		"to 100.50"
	if all := referee.Judge(h); len(all) == 0 || all[0].Evidence != want {
		t.Errorf("want %q, got %+v", want, all)
	}
}

// Judge sorts the rounds by the server's Timestamps, so their order in the slice does not matter.
// Judge does not modify the slice.
func TestJudge_AnyOrderOfRecords_SameVerdict(t *testing.T) {
	t.Parallel()
	h := clean()
	slices.Reverse(h.Rounds)
	first := h.Rounds[0].Fence
	if all := referee.Judge(h); len(all) != 0 || h.Rounds[0].Fence != first {
		t.Errorf("found %+v, or modified the slice of the caller", all)
	}
}

// A round overlaps a long earlier round, even if a short round ended between their beginnings.
func TestJudge_LongRound_EveryOverlapIsFound(t *testing.T) {
	t.Parallel()
	all := referee.Judge(referee.History{Rounds: []cluster.Round{round("long", 1, 1, 50), round("short", 2, 2, 3),
		round("late", 3, 10, 20)}})
	var subjects []string
	for _, v := range all {
		if v.Breach == referee.Overlap {
			subjects = append(subjects, v.Subject)
		}
	}
	if !slices.Equal(subjects, []string{"short", "late"}) {
		t.Errorf("found %+v", all)
	}
}
