package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/singletontest"
	"mongodlm/singleton"
)

// The suite of the stores of loops and schedules, which the one in memory passes as well.
func TestSingletonStore_Conforms(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		if w.d.own == "config" || w.d.name == "uri" {
			t.Skip("the suite wants databases of its own")
		}
		// Two databases, each emptied after its case: making one for each takes a replica set long.
		free := make(chan *mongo.Database, 2)
		for i := range cap(free) {
			db := w.d.app.Database(fmt.Sprintf("%s_%d", w.db.Name(), i),
				options.Database().SetWriteConcern(writeconcern.Majority()))
			t.Cleanup(func() { assert.NoErr(t, db.Drop(context.WithoutCancel(t.Context()))) })
			free <- db
		}
		singletontest.Run(t, func(t *testing.T) singletontest.Store {
			db := <-free
			t.Cleanup(func() {
				for _, collection := range []string{singleton.SettingsCollection, singleton.RecordsCollection} {
					ctx := context.WithoutCancel(t.Context())
					assert.Value(db.Collection(collection).DeleteMany(ctx, bson.D{}))(t)
				}
				free <- db
			})
			put := func(ctx context.Context, collection string, doc bson.D) error {
				upsert := options.Replace().SetUpsert(true)
				return assert.Err(db.Collection(collection).ReplaceOne(ctx, doc[:1], doc, upsert))
			}
			return singletontest.Store{Store: singletonStore(t, db), Put: put}
		})
	})
}

func singletonStore(t testing.TB, db *mongo.Database) singleton.Store {
	t.Helper()
	return assert.Value(singleton.NewStore(db))(t)
}

// forgetSingleton removes what a test wrote by this name, where the database is not its own.
func (w *world) forgetSingleton(t testing.TB, name string) {
	t.Cleanup(func() {
		for _, collection := range []string{singleton.SettingsCollection, singleton.RecordsCollection} {
			ctx := context.WithoutCancel(t.Context())
			assert.NoErr(t, assert.Err(w.db.Collection(collection).DeleteOne(ctx, byID(name))))
		}
	})
}

// running runs something on processes until the test is over, or end is called.
func running(
	t *testing.T, managers []*distlock.Manager, run func(context.Context, *distlock.Manager) error,
) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, m := range managers {
		wg.Go(func() { assert.NoErr(t, run(ctx, m)) })
	}
	end = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(end)
	return end
}

// The pause switch and the window of a loop are obeyed by the next round, and a round costs three
// commands.
func TestLoop_SettingsObeyed_ThreeCommandsARound(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("loop")
		w.forgetSingleton(t, name)
		var sent counter
		client := w.client(t, &sent)
		store := singletonStore(t, client.Database(w.db.Name()))
		var mu sync.Mutex
		var rounds, commands int
		count := func() (int, int) {
			mu.Lock()
			defer mu.Unlock()
			return rounds, commands
		}
		loop := singleton.Loop{Name: name, Store: store, Every: 100 * time.Millisecond,
			Do: func(context.Context, *distlock.TryGuard) error {
				mu.Lock()
				defer mu.Unlock()
				rounds, commands = rounds+1, sent.total()
				return nil
			}}
		alone := []*distlock.Manager{w.start(t, nil)}
		running(t, alone, func(ctx context.Context, m *distlock.Manager) error {
			return singleton.Run(ctx, m, loop)
		})
		wantRounds := func(least int) {
			t.Helper()
			eventually(t, 60*time.Second, fmt.Sprint(least, " rounds"), func() bool {
				n, _ := count()
				return n >= least
			})
		}
		wantRounds(1)
		n, before := count()
		wantRounds(n + 10)
		more, after := count()
		if got := float64(after-before) / float64(more-n); got < 3 || got > 3.5 {
			// one more after a failure
			t.Errorf("%.2f commands a round, want 3: %v", got, &sent)
		}
		in := func(hours int) string { return fmt.Sprintf("%d:00", (w.now(t).UTC().Hour()+hours)%24) }
		elsewhere := bson.D{field("start", in(6)), field("stop", in(8))}
		for _, closed := range []bson.E{field("stopped", true), field("activeWindow", elsewhere)} {
			w.plant(t, singleton.SettingsCollection, bson.D{field("_id", name), closed})
			n, _ := count()
			looks := sent.total()
			eventually(t, 60*time.Second, "ten looks at the settings", func() bool {
				return sent.total() >= looks+10
			})
			if more, _ := count(); more > n+1 { // one may have read them before
				t.Errorf("%d rounds although %v", more-n, closed)
			}
			n, _ = count()
			w.plant(t, singleton.SettingsCollection, byID(name))
			wantRounds(n + 1)
		}
	})
}
