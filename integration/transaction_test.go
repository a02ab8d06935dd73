package integration_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// robbed makes another process the holder of the lock, as a takeover does.
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

// InTransaction commits its writes if and only if the lock is held at the commit. If locks are
// sharded, the lock and the data are on different shards.
func TestInTransaction_CommitsOnlyWhileHeld(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "mongos", "sharded", "uri"), func(t *testing.T, w *world) {
		m := w.start(t, slow) // slow, so that no ping finds the takeover first
		if !m.Stats().Server.Transactions {
			t.Skip("this deployment has no transactions")
		}
		coll := w.db.Collection("work")
		if err := w.db.CreateCollection(t.Context(), "work"); err != nil {
			t.Logf("create: %v", err) // the collection may exist
		}
		insert := func(ctx context.Context, id string) error {
			return assert.Err(coll.InsertOne(ctx, byID(w.name(id))))
		}
		there := func(id string) bool { return w.count(t, coll, byID(w.name(id))) == 1 }
		assert.Must(t, insert(t.Context(), "first"))
		var g *distlock.TryGuard
		if w.d.name == "sharded" {
			g = w.heldOn(t, m, 1-w.shardOf(t, "work", w.name("first")))
		} else {
			g = w.mustTry(t, m, w.name("a"))
		}
		assert.Must(t, g.InTransaction(t.Context(), func(ctx context.Context) error {
			return insert(ctx, "held")
		}))
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
			if runs == 1 { // the takeover comes after the transaction's snapshot
				w.robbed(t, g)
			}
			return nil
		})
		assert.Is(t, err, distlock.ErrLockLost)
		if runs != 1 {
			t.Errorf("work ran %d times, want once", runs)
		}
		if there("stale") || !there("held") {
			t.Errorf("stale %v, held %v: want only what was written under the lock", there("stale"),
				there("held"))
		}
		assert.Is(t, g.Err(), distlock.ErrLockLost)
	})
}

// I5: A stale holder's fenced write matches no document that a later holder has written.
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
		filter, update := byID(id), increase("n", 1)
		assert.Value(coll.InsertOne(t.Context(), bson.D{field("_id", id), field("n", 0)}))(t)
		t.Cleanup(func() { _, _ = coll.DeleteOne(context.WithoutCancel(t.Context()), filter) })
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
		if n := write(oldFilter, oldUpdate); n != 0 { // made before the release, sent late
			t.Errorf("the stale write matched %d", n)
		}
	})
}

func increase(key string, by int64) bson.D {
	return bson.D{field("$inc", bson.D{field(key, by)})}
}

func (w *world) plantCounter(t testing.TB, id string) {
	t.Helper()
	w.plant(t, "work", bson.D{field("_id", id), field("n", int64(0))})
}

// transacting lists the deployments that have transactions in the database of the tests.
var transacting = named("replicaset", "configsvr", "mongos", "sharded", "uri")

// transact calls the given function in a transaction. The driver may call the function several
// times.
func transact(ctx context.Context, client *mongo.Client, work func(context.Context) error) error {
	s, err := client.StartSession()
	if err != nil {
		return err
	}
	defer s.EndSession(context.WithoutCancel(ctx))
	_, err = s.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, work(ctx) },
		options.Transaction().SetWriteConcern(writeconcern.Majority()))
	return err
}

// transactor starts a process and returns it with its client. pool is the maximum number of
// connections; 0 means no limit.
func (w *world) transactor(t testing.TB, pool uint64) (*mongo.Client, *distlock.Manager) {
	t.Helper()
	client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMaxPoolSize(pool))
	m := w.start(t, func(cfg *distlock.Config) { cfg.Client = client })
	if !m.Stats().Server.Transactions {
		t.Skip("this deployment has no transactions")
	}
	return client, m
}

// together starts the given number of users in parallel. Each user calls the given function once
// per round.
func (w *world) together(t *testing.T, users, rounds int, use func(context.Context, int) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*turnLimit)
	defer cancel()
	var running sync.WaitGroup
	for i := range users {
		running.Go(func() {
			for round := range rounds {
				if err := use(ctx, i); err != nil {
					t.Errorf("user %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	running.Wait()
}

// Transactions and guards of one lock exclude each other, even if a transaction aborts. Each of
// them reads and writes a counter outside of any transaction, and no update is lost. The fences of
// the guards rise. A client with one or two connections is enough.
func TestLockInTransaction_CounterBesideIt_LosesNoUpdate(t *testing.T) {
	t.Parallel()
	forThese(t, transacting, func(t *testing.T, w *world) {
		name := w.name("balancer")
		w.plantCounter(t, name)
		client, m := w.transactor(t, 1)
		otherClient, other := w.transactor(t, 2)
		work, aborted := w.db.Collection("work"), errors.New("aborted")
		var inside atomic.Int32
		var writes, fence atomic.Int64
		count := func() error { // a new context keeps it outside the transaction
			assert.Equal(t, inside.Add(1), 1, "%d hold the lock, want %d")
			defer inside.Add(-1)
			raw, err := work.FindOne(t.Context(), byID(name)).Raw()
			if err != nil {
				return err
			}
			n := raw.Lookup("n").AsInt64()
			_, err = work.UpdateOne(t.Context(), byID(name), set(field("n", n+1)))
			if err == nil {
				writes.Add(1)
			}
			return err
		}
		w.together(t, 5, 5, func(ctx context.Context, i int) error {
			if i == 4 {
				return other.Do(ctx, name, func(_ context.Context, g *distlock.TryGuard) error {
					if last := fence.Swap(g.Fence()); last >= g.Fence() {
						t.Errorf("fence %d after %d", g.Fence(), last)
					}
					return count()
				})
			}
			var end error
			if i == 3 {
				end = aborted
			}
			clients, managers := []*mongo.Client{client, otherClient}, []*distlock.Manager{m, other}
			err := transact(ctx, clients[i%2], func(ctx context.Context) error {
				if err := managers[i%2].Lock(name).LockInTransaction(ctx); err != nil {
					return err
				}
				return cmp.Or(count(), end)
			})
			if errors.Is(err, aborted) {
				return nil
			}
			return err
		})
		n := w.document(t, "work", name).Lookup("n").AsInt64()
		if n != writes.Load() || n < 25 {
			t.Errorf("the counter is %d after %d increments", n, writes.Load())
		}
		w.wantFreed(t, name)
	})
}

// The snapshot of a transaction may still show a released lock as held. In that case the driver
// soon runs the transaction again, and the second run acquires the lock.
func TestLockInTransaction_OldPicture_RunsAgain(t *testing.T) {
	t.Parallel()
	forThese(t, transacting, func(t *testing.T, w *world) {
		name := w.name("balancer")
		client, m := w.transactor(t, 0)
		w.plantCounter(t, name)
		g := w.mustTry(t, m, name)
		begun := time.Now()
		err := transact(t.Context(), client, func(ctx context.Context) error {
			work := client.Database(w.db.Name()).Collection("work")
			if err := work.FindOne(ctx, byID(name)).Err(); err != nil {
				return err
			}
			_ = g.Release() // after the snapshot
			return m.Lock(name).LockInTransaction(ctx)
		})
		if took := time.Since(begun); err != nil || took > turnLimit {
			t.Errorf("it took %v: %v", took, err)
		}
	})
}
