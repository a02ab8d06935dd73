package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/leading"
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

// Whoever touches the lock while work goes on makes it run once more at most: waiters and readers
// that come and go. What the guard renews and reorders from inside is part of the transaction.
func TestInTransaction_Visitors_TwoRunsAtMost(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "mongos", "sharded", "uri"), func(t *testing.T, w *world) {
		m, other := w.start(t, slow), w.start(t, slow)
		if !m.Stats().Server.Transactions {
			t.Skip("this deployment has no transactions")
		}
		if err := w.db.CreateCollection(t.Context(), "work"); err != nil {
			t.Logf("create: %v", err) // it may be there
		}
		coll := w.db.Collection("work")
		for kind, opt := range map[string]distlock.Option{"waiters": distlock.Label(""), "readers": distlock.Shared()} {
			name := w.name(kind)
			g, err := w.try(t, m, name, opt, distlock.Lease(10*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			over, gone := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(gone)
				for n := 0; ; n++ {
					select {
					case <-over:
						return
					case <-time.After(20 * time.Millisecond):
					}
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					if visitor, err := other.Lock(name).Lock(ctx, opt); err == nil {
						_ = visitor.Release()
					}
					cancel()
				}
			}()
			for _, renews := range []bool{false, true} {
				runs, start := 0, time.Now()
				err := g.InTransaction(t.Context(), func(ctx context.Context) error {
					runs++
					if _, err := coll.InsertOne(ctx, bson.D{{Key: "lock", Value: name}}); err != nil {
						return err
					}
					time.Sleep(time.Second)
					if !renews {
						return nil
					}
					return g.Renew(ctx)
				})
				lease, _ := w.lock(t, name).LeaseOf(g.Session())
				if err != nil || runs > 2 || renews != (lease.Number > 1) {
					t.Errorf("%s, renewing %v: %d runs in %v: %v", kind, renews, runs, time.Since(start), err)
				}
				t.Logf("%s, renewing %v: %d runs in %v", kind, renews, runs, time.Since(start).Round(time.Millisecond))
			}
			if n := w.count(t, coll, bson.D{{Key: "lock", Value: name}}); n != 2 {
				t.Errorf("%s: %d documents, want one of each transaction", kind, n)
			}
			close(over)
			<-gone
			if err := g.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A waiter that is put first from inside is so with the commit.
func TestInTransaction_PutFirstInside_IsPartOfIt(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "mongos", "sharded", "uri"), func(t *testing.T, w *world) {
		m, other := w.start(t, slow), w.start(t, slow)
		if !m.Stats().Server.Transactions {
			t.Skip("this deployment has no transactions")
		}
		name := w.name("a")
		g := w.mustTry(t, m, name)
		one := w.queue(t, other, name)
		two := w.queue(t, other, name)
		last, runs := w.lock(t, name).Waiters[1].TS, 0
		err := g.InTransaction(t.Context(), func(ctx context.Context) error {
			runs++
			return leading.Of[*distlock.DistributedLock, *distlock.TryGuard, *distlock.LockInfo]().PutFirst(ctx, g, last)
		})
		if err != nil || runs > 2 || w.lock(t, name).Waiters[0].TS != last {
			t.Errorf("%d runs: %v", runs, err)
		}
		if err := g.Release(); err != nil {
			t.Error(err)
		}
		for _, next := range []<-chan turn{two, one} {
			if err := wantTurn(t, next).Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A run is bounded by the guard, and not only by the time for which one is trusted.
func TestInTransaction_GuardLost_EndsTheRun(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "sharded"), func(t *testing.T, w *world) {
		m := w.start(t, func(cfg *distlock.Config) { slow(cfg); cfg.Ping = paced(time.Second) })
		g := w.mustTry(t, m, w.name("a"))
		start := time.Now()
		err := g.InTransaction(t.Context(), func(ctx context.Context) error {
			w.robbed(t, g) // the heartbeat finds it
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, distlock.ErrLockLost) {
			t.Errorf("error is %v, want ErrLockLost", err)
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// Where there are no transactions the error says so, and work is not called.
func TestInTransaction_NoTransactions_IsSaid(t *testing.T) {
	t.Parallel()
	forThese(t, named("embedded", "standalone"), func(t *testing.T, w *world) {
		m := w.start(t, slow)
		g := w.mustTry(t, m, w.name("a"))
		err := g.InTransaction(t.Context(), func(context.Context) error {
			t.Error("work was called")
			return nil
		})
		if !errors.Is(err, distlock.ErrNoTransactions) {
			t.Errorf("error is %v, want ErrNoTransactions", err)
		}
		if err := g.Err(); err != nil {
			t.Errorf("the guard suffered: %v", err)
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
