package integration_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/distlock"
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
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) count(t testing.TB, coll *mongo.Collection, filter bson.D) int64 {
	t.Helper()
	n, err := coll.CountDocuments(t.Context(), filter)
	if err != nil {
		t.Fatal(err)
	}
	return n
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
		if err := g.InTransaction(t.Context(), func(ctx context.Context) error { return insert(ctx, "held") }); err != nil {
			t.Fatal(err)
		}
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
		if !errors.Is(err, distlock.ErrLockLost) {
			t.Errorf("after a takeover: %v, want ErrLockLost", err)
		}
		if runs != 1 {
			t.Errorf("work ran %d times, want once: a write conflict, then nothing to match before it", runs)
		}
		if there("stale") || !there("held") {
			t.Errorf("stale %v, held %v: want only what was written under the lock", there("stale"), there("held"))
		}
		if err := g.Err(); !errors.Is(err, distlock.ErrLockLost) {
			t.Errorf("guard: %v", err)
		}
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
			r, err := coll.UpdateOne(t.Context(), filter, update)
			if err != nil {
				t.Fatal(err)
			}
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
		if err != nil {
			t.Fatal(err)
		}
		if n := write(oldFilter, oldUpdate); n != 1 {
			t.Fatalf("the holder's own write matched %d", n)
		}
		if err := old.Release(); err != nil {
			t.Fatal(err)
		}
		next := w.mustTry(t, m, w.name("a"))
		newFilter, newUpdate, err := next.Fenced(filter, update)
		if err != nil {
			t.Fatal(err)
		}
		if n := write(newFilter, newUpdate); n != 1 {
			t.Fatalf("the next holder's write matched %d", n)
		}
		if n := write(oldFilter, oldUpdate); n != 0 { // on its way since before the release
			t.Errorf("the stale write matched %d", n)
		}
	})
}
