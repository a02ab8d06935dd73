package integration_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// Hello reports correctly whether transactions, change streams and pipeline updates work in a
// database. In the database named config of a replica set, transactions and change streams do not
// work.
func TestServer_Features_AreWhatReallyWorks(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		wantFeatures(t, w, w.db)
		if w.d.set != nil && w.db.Name() != "config" {
			wantFeatures(t, w, w.d.app.Database("config"))
		}
	})
}

func wantFeatures(t *testing.T, w *world, db *mongo.Database) {
	t.Helper()
	c := assert.Value(mongocatalog.New(w.d.app, mongocatalog.Options{Database: db.Name()}))(t)
	s := assert.Value(c.Hello(t.Context()))(t)
	kinds := map[string]catalog.Kind{
		"embedded": catalog.FerretDB, "standalone": catalog.Standalone,
		"replicaset": catalog.ReplicaSet, "configsvr": catalog.ReplicaSet,
		"mongos": catalog.Mongos, "sharded": catalog.Mongos,
	}
	if want, ok := kinds[w.d.name]; ok && s.Kind != want {
		t.Errorf("kind: want %s, got %s", want, s.Kind)
	}
	if s.ConfigServer != (w.d.name == "configsvr") && w.d.name != "uri" {
		t.Errorf("config server: got %v", s.ConfigServer)
	}
	embedded := w.d.name == "embedded" // the embedded server names no primary
	nameless := embedded || s.Kind == catalog.Mongos
	if s.Front != embedded || s.Version == "" || (s.Primary == "") != nameless {
		t.Errorf("server: got %+v", s)
	}
	if err := transaction(t.Context(), db, w.name("work")); (err == nil) != s.Transactions {
		t.Errorf("%s: Transactions is %v, tried: %v", db.Name(), s.Transactions, err)
	}
	if err := watch(t.Context(), db); (err == nil) != s.ChangeStreams {
		t.Errorf("%s: ChangeStreams is %v, tried: %v", db.Name(), s.ChangeStreams, err)
	}
	if err := pipelineUpdate(t.Context(), db, w.name("work")); (err == nil) != s.PipelineUpdates {
		t.Errorf("%s: PipelineUpdates is %v, tried: %v", db.Name(), s.PipelineUpdates, err)
	}
}

// transaction writes a document in a transaction and then removes it.
func transaction(ctx context.Context, db *mongo.Database, id string) error {
	work := db.Collection("distlock_it_work")
	if _, err := work.DeleteMany(ctx, byID(id)); err != nil { // the collection need not exist
		return err
	}
	err := transact(ctx, db.Client(), func(ctx context.Context) error {
		return assert.Err(work.InsertOne(ctx, byID(id)))
	})
	return errors.Join(err, assert.Err(work.DeleteMany(ctx, byID(id))))
}

func watch(ctx context.Context, db *mongo.Database) error {
	stream, err := db.Collection(catalog.LocksCollection).Watch(ctx, mongo.Pipeline{})
	if err != nil {
		return err
	}
	return stream.Close(ctx)
}

func pipelineUpdate(ctx context.Context, db *mongo.Database, id string) error {
	update := mongo.Pipeline{{{Key: "$set", Value: bson.D{{Key: "at", Value: "$$NOW"}}}}}
	return assert.Err(db.Collection("distlock_it_work").UpdateOne(ctx, byID(id), update))
}
