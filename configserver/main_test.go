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

// TestMain fails if a goroutine is left, even a goroutine of FerretDB.
func TestMain(m *testing.M) { effort.Main(m) }

func start(t testing.TB, cfg configserver.Config) *configserver.Server {
	t.Helper()
	s := assert.Value(configserver.Start(t.Context(), cfg))(t)
	t.Cleanup(func() { assert.NoErr(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client := assert.Value(mongo.Connect(options.Client().ApplyURI(uri)))(t)
	// The context has ended. Otherwise Disconnect may wait 30 s for a server that is closed.
	t.Cleanup(func() { assert.NoErr(t, client.Disconnect(t.Context())) })
	return client
}

func d(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

func byID(id string) bson.D { return d("_id", id) }
