package configserver_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

// The check for leaked goroutines has no exceptions, not even for FerretDB.
func TestMain(m *testing.M) { effort.Main(m) }

// start runs a server until the end of the test.
func start(t testing.TB, cfg configserver.Config) *configserver.Server {
	t.Helper()
	s := assert.Value(configserver.Start(t.Context(), cfg))(t)
	t.Cleanup(func() { assert.NoErr(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

// connect returns a client that is closed at the end of the test.
func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(uri)))(t)
	t.Cleanup(func() { assert.NoErr(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	return client
}

// d makes a document of one field.
func d(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// byID makes the filter of one document.
func byID(id string) bson.D { return d("_id", id) }
