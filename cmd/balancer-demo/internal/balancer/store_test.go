package balancer_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

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

// A process that lost the lock cannot undo a later holder's move of a chunk.
func TestStore_StaleMove_MatchesNothing(t *testing.T) {
	t.Parallel()
	client := open(t)
	s := balancer.NewStore(client, "test", true)
	sample := assert.Value(cluster.Sample())(t)
	assert.Must(t, s.Load(t.Context(), sample))
	assert.Is(t, s.Load(t.Context(), sample), balancer.ErrNotEmpty)
	now := assert.Value(s.Read(t.Context()))(t)
	move := cluster.Candidates(now)[0]
	at, err := s.Move(t.Context(), move, 5)
	if err != nil || at.IsZero() {
		t.Fatalf("moved at %v, %v", at, err)
	}
	after := assert.Value(s.Read(t.Context()))(t).Chunks
	chunk := after[slices.IndexFunc(after,
		func(c cluster.Chunk) bool { return c.Name() == move.Chunk.Name() })]
	if chunk.Shard != move.To || chunk.Fence != 5 {
		t.Errorf("moved to %+v", chunk)
	}
	back := cluster.Migration{Chunk: chunk, To: move.Chunk.Shard}
	assert.Is(t, assert.Err(s.Move(t.Context(), back, 4)), balancer.ErrStale)
	assert.Is(t, assert.Err(s.Move(t.Context(), move, 6)), balancer.ErrStale)
	round := cluster.Round{ID: "p/5", Process: "p", Fence: 5, Entered: at}
	assert.Must(t, s.Save(t.Context(), round))
	round.Moves = []cluster.Move{{Chunk: chunk.Name(), To: move.To, At: at}}
	assert.Must(t, s.Save(t.Context(), round))
	assert.Value(s.Tick(t.Context()))(t) // is not in the records
	rounds := assert.Value(s.Rounds(t.Context()))(t)
	if len(rounds) != 1 || !reflect.DeepEqual(rounds[0], round) {
		t.Errorf("want %+v, got %+v", round, rounds)
	}
}

// On a config server the demo writes only to collections of its own, because the others are the
// metadata of the cluster.
func TestStore_ConfigServer_OtherCollectionsAreUntouched(t *testing.T) {
	t.Parallel()
	client := open(t)
	s := balancer.NewStore(client, "test", true)
	assert.Must(t, s.Load(t.Context(), assert.Value(cluster.Sample())(t)))
	assert.Value(s.Tick(t.Context()))(t)
	names := assert.Value(client.Database("test").ListCollectionNames(t.Context(), bson.D{}))(t)
	for _, name := range names {
		if !strings.HasPrefix(name, "demo_") {
			t.Errorf("the demo has written to %s", name)
		}
	}
	if len(names) != 4 {
		t.Errorf("collections %q, want four", names)
	}
}
