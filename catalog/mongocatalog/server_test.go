package mongocatalog_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
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

// connect returns a client for the server in MONGODLM_TEST_URI. Without that variable it skips the
// test.
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

// database returns a new database, which is dropped when the test ends. Its documents are visible
// to a majority read.
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

func TestCatalog_OnServer_Acquire_Validator_IsCertainlyNotApplied(t *testing.T) { // F21
	t.Parallel()
	client := connect(t)
	db := database(t, client)
	err := db.CreateCollection(t.Context(), "locks", options.CreateCollection().
		SetValidator(bson.D{{Key: "fence", Value: bson.D{{Key: "$exists", Value: false}}}}))
	if err != nil {
		t.Skipf("this server has no validators: %v", err)
	}
	c, err := mongocatalog.New(client, mongocatalog.Options{Database: db.Name()})
	assert.Must(t, err)
	_, err = on(c).Acquire(t.Context(), request())
	if err == nil || errors.Is(err, catalog.ErrUnknownOutcome) ||
		!strings.Contains(err.Error(), "validation") {
		t.Errorf("want the server's refusal, got %v", err)
	}
}
