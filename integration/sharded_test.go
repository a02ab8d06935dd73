package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/mongodtest"
)

// broadcast lists the operations that may query several shards. HeldOrFree and Snapshots query the
// shards of the given names. The other listed operations search all locks or all pings.
var broadcast = []string{"Held", "Waiting", "OldPings", "Prune", "HeldOrFree", "Snapshots"}

// If locks and pings are sharded, a command queries one shard. Only the operations in broadcast may
// query several shards.
func TestSharded_Commands_GoToOneShard(t *testing.T) {
	inTurn(t, named("sharded"), func(t *testing.T, w *world) {
		var sent tape
		client := w.client(t, &sent)
		c := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: w.db.Name()}))(t)
		process := w.name("pinging")
		request := func() catalog.Request {
			return catalog.Request{Process: process, Takeover: time.Minute,
				Session: catalog.Session{Name: w.name("waited for"), TS: bson.NewObjectID()}}
		}
		held, waiting := request(), request()
		renewal := catalog.Renewal{Session: held.Session, Number: 1, Life: time.Minute, Local: time.Now()}
		on := catalogtest.On(c)
		assert.Value(on.Enter(t.Context(), held, catalog.Queue))(t)
		more := []operation{
			{"Enter", func(ctx context.Context) error {
				return assert.Err(on.Enter(ctx, waiting, catalog.Queue))
			}},
			{"Renew", func(ctx context.Context) error { return on.Renew(ctx, renewal) }},
			{"HandOver", func(ctx context.Context) error { return assert.Err(on.Leave(ctx, held.Session)) }},
			{"Ping", func(ctx context.Context) error {
				b := catalog.Heartbeat{Process: process, Seq: 1, Takeover: time.Minute}
				return assert.Err(c.Ping(ctx, b))
			}},
			{"RemovePing", func(ctx context.Context) error { return on.RemovePing(ctx, process) }},
		}
		for _, one := range append(w.operations(t, c), more...) {
			sent.take()
			if err := one.run(t.Context()); err != nil {
				t.Fatalf("%s: %v", one.verb, err)
			}
			var asked []int
			for _, command := range sent.take() {
				var plan bson.Raw
				err := w.db.RunCommand(t.Context(), bson.D{
					field("explain", command), field("verbosity", "queryPlanner"),
				}).Decode(&plan)
				if err != nil {
					t.Fatalf("explain %v: %v", command, err)
				}
				asked = append(asked, shardsIn(t, plan))
			}
			most := slices.Max(asked)
			t.Logf("%-12s shards queried by its commands: %v", one.verb, asked)
			if slices.Contains(broadcast, one.verb) {
				continue
			}
			if most != 1 {
				t.Errorf("%s: its commands query %v shards, want one each", one.verb, asked)
			}
		}
	})
}

// shardsIn returns the number of shards in a plan of a mongos.
func shardsIn(t *testing.T, plan bson.Raw) int {
	t.Helper()
	if several, ok := plan.Lookup("shards").DocumentOK(); ok { // an aggregate's plan
		elements, _ := several.Elements()
		return len(elements)
	}
	list, ok := plan.Lookup("queryPlanner", "winningPlan", "shards").ArrayOK()
	if !ok {
		t.Fatalf("no shards in %v", plan)
	}
	values, _ := list.Values()
	return len(values)
}

// shardOf returns the number of the shard that stores a document. It reads from the shards
// directly.
func (w *world) shardOf(t testing.TB, collection, id string) int {
	t.Helper()
	for i, s := range w.d.over.Shards {
		all := shardClient(t, s).Database(w.db.Name()).Collection(collection)
		if w.count(t, all, byID(id)) > 0 {
			return i
		}
	}
	t.Fatalf("%s %q is on no shard", collection, id)
	return 0
}

func shardClient(t testing.TB, s *mongodtest.Deployment) *mongo.Client {
	t.Helper()
	return privateClient(t, options.Client().ApplyURI(s.URI()))
}

// heldOn acquires a lock whose document is on the given shard.
func (w *world) heldOn(t testing.TB, m *distlock.Manager, shard int) *distlock.TryGuard {
	t.Helper()
	for i := range 64 {
		g := w.mustTry(t, m, w.name(fmt.Sprint("balancer-", i)))
		if w.shardOf(t, catalog.LocksCollection, g.Name()) == shard {
			return g
		}
		wantReleased(t, g)
	}
	t.Fatalf("none of 64 names is on shard %d", shard)
	return nil
}

// If the primary of a lock's shard steps down, or is killed and restarted, the lock stays held.
// After the release, the waiters acquire the lock in order, with rising fences.
func TestSharded_ShardGoesAway_LockAndLineSurvive(t *testing.T) {
	inTurn(t, named("sharded"), func(t *testing.T, w *world) {
		for what, harm := range map[string]func(s *mongodtest.Deployment) error{
			"steps down": func(s *mongodtest.Deployment) error { return s.StepDown(t.Context()) },
			"is killed and restarted": func(s *mongodtest.Deployment) error {
				s.Kill(0)
				return s.Restart(t.Context(), 0)
			},
		} {
			for shard, s := range w.d.over.Shards {
				t.Run(fmt.Sprintf("%s, shard %d", what, shard), func(t *testing.T) {
					holder, a, b := w.start(t, nil), w.start(t, nil), w.start(t, nil)
					g := w.heldOn(t, holder, shard)
					waiters := []<-chan turn{w.queue(t, a, g.Name()), w.queue(t, b, g.Name())}
					assert.Must(t, harm(s))
					assert.Value(s.Primary(t.Context()))(t)
					eventually(t, time.Minute, "the lock can be read again", func() bool {
						return g.Verify(t.Context()) == nil || errors.Is(g.Err(), distlock.ErrLockLost)
					})
					assert.Must(t, g.Err())
					wantTurns(t, g, waiters...)
				})
			}
		}
	})
}

// If the chunk of a held lock moves to another shard, the lock and its queue do not change. After
// the release the waiters acquire the lock in order.
func TestSharded_ChunkMoves_LockAndLineMoveAlong(t *testing.T) {
	inTurn(t, named("sharded"), func(t *testing.T, w *world) {
		for from := range 2 {
			t.Run(fmt.Sprintf("from shard %d", from), func(t *testing.T) {
				holder, a, b := w.start(t, nil), w.start(t, nil), w.start(t, nil)
				g := w.heldOn(t, holder, from)
				waiters := []<-chan turn{w.queue(t, a, g.Name()), w.queue(t, b, g.Name())}
				var back func()
				w.untouched(t, g.Name(), func() { back = w.moveChunks(t, from, 1-from) })
				assert.Must(t, g.Verify(t.Context()))
				if at := w.shardOf(t, catalog.LocksCollection, g.Name()); at == from {
					t.Error("the lock did not move")
				}
				wantTurns(t, g, waiters...)
				back() // both shards have chunks again
			})
		}
	})
}

// moveChunks moves all chunks of locks and pings from one shard to another. The returned function
// moves them back.
func (w *world) moveChunks(t testing.TB, from, to int) (back func()) {
	t.Helper()
	config := w.d.app.Database("config")
	moved := map[string][]bson.A{} // the bounds by namespace
	move := func(namespace string, bounds bson.A, to int) {
		t.Helper()
		err := w.d.over.Run(t.Context(), bson.D{
			field("moveChunk", namespace), field("bounds", bounds),
			field("to", w.d.over.Shards[to].Name()), field("_waitForDelete", true),
		})
		assert.Must(t, err)
	}
	for _, collection := range []string{catalog.LocksCollection, catalog.PingsCollection} {
		namespace := w.db.Name() + "." + collection
		raw, err := config.Collection("collections").FindOne(t.Context(), byID(namespace)).Raw()
		assert.Must(t, err)
		cursor, err := config.Collection("chunks").Find(t.Context(), bson.D{
			field("shard", w.d.over.Shards[from].Name()), // uuid replaces ns from 5.0 on
			field("$or", bson.A{bson.D{field("ns", namespace)}, bson.D{field("uuid", raw.Lookup("uuid"))}}),
		})
		assert.Must(t, err)
		var chunks []bson.Raw
		assert.Must(t, cursor.All(t.Context(), &chunks))
		if len(chunks) == 0 {
			t.Fatalf("%s has no chunks on shard %d", namespace, from)
		}
		for _, chunk := range chunks {
			bounds := bson.A{chunk.Lookup("min"), chunk.Lookup("max")}
			move(namespace, bounds, to)
			moved[namespace] = append(moved[namespace], bounds)
		}
	}
	return func() {
		for namespace, all := range moved {
			for _, bounds := range all {
				move(namespace, bounds, from)
			}
		}
	}
}
