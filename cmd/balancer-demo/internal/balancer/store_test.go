package balancer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

func open(t *testing.T) *mongo.Client {
	t.Helper()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	client := assert.Value(mongocatalog.Dial(options.Client(), server.URI(), 0, ""))(t)
	t.Cleanup(func() {
		ctx := context.Background()
		assert.NoErr(t, errors.Join(client.Disconnect(ctx), server.Close(ctx)))
	})
	return client
}

// A process that lost the lock cannot undo a later holder's move of a chunk. History returns only
// the records that balancers of the demo wrote.
func TestStore_StaleMove_MatchesNothing(t *testing.T) {
	t.Parallel()
	client := open(t)
	s := balancer.NewStore(client, "test", true)
	sample := assert.Value(cluster.Sample())(t)
	assert.Must(t, s.Load(t.Context(), sample))
	assert.Is(t, s.Load(t.Context(), sample), balancer.ErrNotEmpty)
	now := assert.Value(s.Read(t.Context()))(t)
	move := cluster.Candidates(now)[0]
	at, err := s.Move(t.Context(), move, 5, now.NextVersion(move.Chunk.NS))
	if err != nil || at.IsZero() {
		t.Fatalf("moved at %v, %v", at, err)
	}
	after := assert.Value(s.Read(t.Context()))(t).Chunks
	chunk := after[slices.IndexFunc(after,
		func(c cluster.Chunk) bool { return c.Name() == move.Chunk.Name() })]
	if chunk.Shard != move.To || chunk.Fence != 5 ||
		chunk.Lastmod != now.NextVersion(move.Chunk.NS) {
		t.Errorf("moved to %+v", chunk)
	}
	back := cluster.Migration{Chunk: move.Chunk, From: move.To, To: move.From}
	assert.Is(t, assert.Err(s.Move(t.Context(), back, 4, bson.Timestamp{T: 99})), balancer.ErrStale)
	assert.Is(t, assert.Err(s.Move(t.Context(), move, 6, bson.Timestamp{T: 99})), balancer.ErrStale)
	round := cluster.NewRound("p", 5, at)
	changed := move.Changed(round, at, "host", 1, time.Unix(int64(at.T), 0))
	foreign := client.Database("test").Collection("demo_changelog")
	_, err = foreign.InsertMany(t.Context(), []any{
		bson.M{"_id": "1", "what": "split", "ns": 5}, bson.M{"_id": "2", "what": cluster.Moved,
			"details": bson.M{"from": 7}}})
	assert.Must(t, errors.Join(err, s.Record(t.Context(), changed),
		s.Save(t.Context(), round)))
	round.Moves = 1
	assert.Must(t, s.Save(t.Context(), round))
	rounds, changes, err := s.History(t.Context())
	if err != nil || len(rounds) != 1 || rounds[0] != round || len(changes) != 1 ||
		changes[0].Details != changed.Details {
		t.Errorf("want %+v and %+v, got %+v and %+v, %v", round, changed, rounds, changes, err)
	}
}
