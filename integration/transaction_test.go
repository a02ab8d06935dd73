package integration_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// robbed makes another process the holder, as a takeover does, at once.
func (w *world) robbed(t testing.TB, g *distlock.TryGuard) {
	t.Helper()
	_, err := w.db.Collection(catalog.LocksCollection).UpdateOne(t.Context(),
		bson.D{{Key: "_id", Value: g.Name()}, {Key: "ts", Value: g.Session()}},
		bson.D{
			{Key: "$set", Value: bson.D{
				{Key: "ts", Value: bson.NewObjectID()}, {Key: "process", Value: w.name("robber")}}},
			{Key: "$inc", Value: bson.D{{Key: "fence", Value: int64(1)}}},
		})
	assert.Must(t, err)
}

func (w *world) count(t testing.TB, coll *mongo.Collection, filter bson.D) int64 {
	t.Helper()
	return assert.Value(coll.CountDocuments(t.Context(), filter))(t)
}

// What a transaction wrote is there exactly if the lock was held when it committed.
func TestInTransaction_CommitsOnlyWhileHeld(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "mongos", "sharded", "uri"), func(t *testing.T, w *world) {
		m := w.start(t, slow) // no ping shall find the takeover first
		if !m.Stats().Server.Transactions {
			t.Skip("this deployment has no transactions")
		}
		coll := w.db.Collection("work")
		if err := w.db.CreateCollection(t.Context(), "work"); err != nil {
			t.Logf("create: %v", err) // it may be there
		}
		insert := func(ctx context.Context, id string) error {
			_, err := coll.InsertOne(ctx, bson.D{{Key: "_id", Value: w.name(id)}})
			return err
		}
		there := func(id string) bool {
			return w.count(t, coll, bson.D{{Key: "_id", Value: w.name(id)}}) == 1
		}
		g := w.mustTry(t, m, w.name("a"))
		assert.Must(t, g.InTransaction(t.Context(), func(ctx context.Context) error { return insert(ctx, "held") }))
		mine := errors.New("mine")
		err := g.InTransaction(t.Context(), func(ctx context.Context) error {
			return errors.Join(insert(ctx, "failed"), mine)
		})
		if !errors.Is(err, mine) || there("failed") {
			t.Errorf("work failed: %v, written: %v", err, there("failed"))
		}
		runs := 0
		err = g.InTransaction(t.Context(), func(ctx context.Context) error {
			runs++
			if err := insert(ctx, "stale"); err != nil {
				return err
			}
			if runs == 1 { // the transaction has its snapshot: the takeover comes in between
				w.robbed(t, g)
			}
			return nil
		})
		assert.Is(t, err, distlock.ErrLockLost)
		if runs != 1 {
			t.Errorf("work ran %d times, want once: a write conflict, then nothing to match before it", runs)
		}
		if there("stale") || !there("held") {
			t.Errorf("stale %v, held %v: want only what was written under the lock", there("stale"), there("held"))
		}
		assert.Is(t, g.Err(), distlock.ErrLockLost)
	})
}

// I5: a stale holder's fenced write matches nothing on a document that a newer holder has written.
func TestFenced_StaleHolder_IsRefused(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m := w.start(t, nil)
		coll := w.db.Collection("distlock_it_fenced")
		id := w.name("doc")
		write := func(filter, update bson.D) int64 {
			t.Helper()
			r := assert.Value(coll.UpdateOne(t.Context(), filter, update))(t)
			return r.MatchedCount
		}
		if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}, {Key: "n", Value: 0}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = coll.DeleteOne(context.WithoutCancel(t.Context()), bson.D{{Key: "_id", Value: id}}) })
		filter := bson.D{{Key: "_id", Value: id}}
		update := bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}
		old := w.mustTry(t, m, w.name("a"))
		oldFilter, oldUpdate, err := old.Fenced(filter, update)
		assert.Must(t, err)
		assert.MustEqual(t, write(oldFilter, oldUpdate), 1,
			"the holder's own write matched %d, want %d")
		assert.Must(t, old.Release())
		next := w.mustTry(t, m, w.name("a"))
		newFilter, newUpdate, err := next.Fenced(filter, update)
		assert.Must(t, err)
		assert.MustEqual(t, write(newFilter, newUpdate), 1,
			"the next holder's write matched %d, want %d")
		if n := write(oldFilter, oldUpdate); n != 0 { // on its way since before the release
			t.Errorf("the stale write matched %d", n)
		}
	})
}
