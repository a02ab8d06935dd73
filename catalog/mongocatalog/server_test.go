package mongocatalog_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"pgregory.net/rapid"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) {
	effort.RapidChecks(100)
	effort.AtOnce(24) // tests that wait for a missing reply run in parallel
	effort.Main(m)
}

func connect(t *testing.T) *mongo.Client {
	t.Helper()
	uri := os.Getenv("MONGODLM_TEST_URI")
	if uri == "" {
		t.Skip("MONGODLM_TEST_URI is not set: it names a server on which databases " +
			"mongodlm_test_* may be made and dropped")
	}
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(uri)))(t)
	t.Cleanup(func() {
		assert.NoErr(t, client.Disconnect(context.Background()))
	})
	return client
}

// database returns a new database and drops it at the end of the test. Writes wait for a majority,
// because the store reads with read concern majority.
func database(t *testing.T, client *mongo.Client) *mongo.Database {
	t.Helper()
	db := client.Database("mongodlm_test_"+bson.NewObjectID().Hex(),
		options.Database().SetWriteConcern(writeconcern.Majority()))
	t.Cleanup(func() {
		assert.NoErr(t, db.Drop(context.Background()))
	})
	return db
}

func open(t *testing.T, client *mongo.Client) catalogtest.Store {
	t.Helper()
	db := database(t, client)
	c, err := mongocatalog.New(client, mongocatalog.Options{
		Database: db.Name(), CommandTimeout: time.Minute, // long enough for a slow server
	})
	assert.Must(t, err)
	return catalogtest.OnServer(c, db)
}

func TestCatalog_OnServer_DoesAsMemory(t *testing.T) {
	t.Parallel()
	client := connect(t)
	catalogtest.RunDifferential(t, open(t, client), catalogtest.InMemory())
}

// On a real server, the pipelines have the same results as package transition. This test can find a
// mistake that is in both the evaluator and the pipelines.
func TestPipeline_OnServer_AnyDocument_DoesAsPackageTransition(t *testing.T) {
	t.Parallel()
	client := connect(t)
	db := database(t, client)
	c := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: db.Name()}))(t)
	if s := assert.Value(c.Hello(t.Context()))(t); !s.PipelineUpdates {
		t.Skip("this server has no pipeline updates")
	}
	run := func(doc, filter bson.D, pipeline bson.A, upsert bool) (bson.D, bool, time.Time, error) {
		return served(t.Context(), db.Collection("locks"), doc, filter, pipeline, upsert)
	}
	rapid.Check(t, func(t *rapid.T) {
		walk(t, run)
		live(t, run, 12, map[string]int{})
	})
}

// served is a runner that uses a server. An additional stage of the pipeline returns the time of
// the server.
func served(ctx context.Context, locks *mongo.Collection, doc, filter bson.D, pipeline bson.A,
	upsert bool) (after bson.D, ok bool, now time.Time, err error) {
	if _, err := locks.DeleteMany(ctx, bson.D{}); err != nil {
		return nil, false, now, err
	}
	if doc != nil {
		if _, err := locks.InsertOne(ctx, doc); err != nil {
			return nil, false, now, err
		}
	}
	clock := bson.D{e("$set", bson.D{e("now", "$$NOW")})}
	reply, err := locks.Database().RunCommand(ctx, bson.D{
		e("findAndModify", locks.Name()), e("query", filter), e("upsert", upsert), e("new", true),
		e("update", append(append(bson.A{}, pipeline...), clock)),
	}).Raw()
	if mongo.IsDuplicateKeyError(err) {
		return doc, false, now, nil
	}
	if err != nil {
		return nil, false, now, err
	}
	raw, ok := reply.Lookup("value").DocumentOK()
	if !ok {
		return doc, false, now, nil
	}
	if err := bson.Unmarshal(raw, &after); err != nil {
		return nil, false, now, err
	}
	ms, _ := raw.Lookup("now").DateTimeOK()
	return remove(after, []string{"now"}), true, time.UnixMilli(ms).UTC(), nil
}
