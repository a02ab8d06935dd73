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

func TestCatalog_OnServer_Conforms(t *testing.T) {
	t.Parallel()
	client := connect(t)
	t.Run("Suite", func(t *testing.T) {
		catalogtest.Run(t, func(t *testing.T) catalogtest.Store { return open(t, client) })
	})
}

func TestCatalog_OnServer_DoesAsMemory(t *testing.T) {
	t.Parallel()
	client := connect(t)
	catalogtest.RunDifferential(t, open(t, client), catalogtest.InMemory())
}

func TestCatalog_OnServer_Prepare_WarnsOfIndexThatExpires(t *testing.T) { // E17
	t.Parallel()
	client := connect(t)
	db := database(t, client)
	_, err := db.Collection("lockpings").Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys:    bson.D{{Key: "ping", Value: 1}},
		Options: options.Index().SetExpireAfterSeconds(3600).SetName("old pings"),
	})
	if err != nil {
		t.Skipf("this server makes no such index: %v", err)
	}
	c := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: db.Name()}))(t)
	warnings, err := c.Prepare(t.Context())
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `"old pings"`) {
		t.Errorf("want one warning that names the index, got %q, %v", warnings, err)
	}
}

func TestCatalog_OnServer_Acquire_ForeignUniqueIndex_IsNotHeld(t *testing.T) { // F22
	t.Parallel()
	client := connect(t)
	db := database(t, client)
	_, err := db.Collection("locks").Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys:    bson.D{{Key: "process", Value: 1}},
		Options: options.Index().SetUnique(true),
	})
	if err != nil {
		t.Skipf("this server makes no such index: %v", err)
	}
	c, err := mongocatalog.New(client, mongocatalog.Options{Database: db.Name()})
	assert.Must(t, err)
	if s, err := c.Hello(t.Context()); err != nil || s.Kind == catalog.FerretDB {
		t.Skipf("a FerretDB does not name the index: %v", err)
	}
	r := request()
	assert.Value(on(c).Acquire(t.Context(), r))(t)
	r.Name = "other"
	_, err = on(c).Acquire(t.Context(), r)
	if err == nil || errors.Is(err, catalog.ErrNotFree) ||
		errors.Is(err, catalog.ErrUnknownOutcome) || !strings.Contains(err.Error(), "process_1") {
		t.Errorf("want an error that names the index, got %v", err)
	}
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
