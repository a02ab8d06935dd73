package integration_test

import (
	"context"
	"fmt"
	"slices"
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

// The store of loops and schedules passes its conformance suite on each deployment.
func TestSingletonStore_Conforms(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		if w.d.own == "config" || w.d.name == "uri" {
			t.Skip("the suite needs separate databases")
		}
		// The cases share two databases and empty them, because a replica set creates databases slowly.
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

// A loop without a Store keeps its records in the database of the loop's Manager.
func TestSingleton_NoStore_IsThatOfTheManager(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m := w.start(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		name := w.name("no store")
		assert.NoErr(t, singleton.Run(ctx, m, singleton.Loop{Name: name, Every: time.Hour,
			Do: func(context.Context, *distlock.TryGuard) error { cancel(); return nil }}))
		records := assert.Value(singleton.NewStore(w.d.app.Database(m.Config().Database)))(t)
		list := assert.Value(singleton.List(t.Context(), records))(t)
		if !slices.ContainsFunc(list, func(s singleton.Status) bool { return s.Name == name }) {
			t.Errorf("the records are %v", list)
		}
	})
}
