package integration_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// Stats reports transactions, change streams and pipeline updates if and only if they work in the
// configured database. So does Hello in database config, where a replica set has no transactions
// and no change streams.
func TestServer_Features_AreWhatReallyWorks(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		wantFeatures(t, w, w.start(t, nil).Stats().Server, w.db)
		if w.d.set == nil || w.db.Name() == "config" {
			return
		}
		c := assert.Value(mongocatalog.New(w.d.app, mongocatalog.Options{Database: "config"}))(t)
		s := assert.Value(c.Hello(t.Context()))(t)
		wantFeatures(t, w, distlock.Server{
			Kind: string(s.Kind), Version: s.Version, Primary: s.Primary, Embedded: s.Front,
			ConfigServer: s.ConfigServer, Transactions: s.Transactions, ChangeStreams: s.ChangeStreams,
			PipelineUpdates: s.PipelineUpdates,
		}, w.d.app.Database("config"))
	})
}

func wantFeatures(t *testing.T, w *world, s distlock.Server, db *mongo.Database) {
	t.Helper()
	kinds := map[string]catalog.Kind{
		"embedded": catalog.FerretDB, "standalone": catalog.Standalone,
		"replicaset": catalog.ReplicaSet, "configsvr": catalog.ReplicaSet,
		"mongos": catalog.Mongos, "sharded": catalog.Mongos,
	}
	if want, ok := kinds[w.d.name]; ok && s.Kind != string(want) {
		t.Errorf("kind: want %s, got %s", want, s.Kind)
	}
	if s.ConfigServer != (w.d.name == "configsvr") && w.d.name != "uri" {
		t.Errorf("config server: got %v", s.ConfigServer)
	}
	embedded := w.d.name == "embedded" // the embedded server names no primary
	nameless := embedded || s.Kind == string(catalog.Mongos)
	if s.Embedded != embedded || s.Version == "" || (s.Primary == "") != nameless {
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

// transaction writes a document in a transaction and removes it again.
func transaction(ctx context.Context, db *mongo.Database, id string) error {
	session, err := db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	work := db.Collection("distlock_it_work")
	if _, err := work.DeleteMany(ctx, byID(id)); err != nil { // the collection need not exist
		return err
	}
	if err := session.StartTransaction(); err != nil {
		return err
	}
	inside := mongo.NewSessionContext(ctx, session)
	if _, err := work.InsertOne(inside, byID(id)); err != nil {
		_ = session.AbortTransaction(ctx) // the first error is the relevant one
		return err
	}
	if err := session.CommitTransaction(ctx); err != nil {
		return err
	}
	return assert.Err(work.DeleteOne(ctx, byID(id)))
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
