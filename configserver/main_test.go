package configserver_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/configserver"
	"mongodlm/internal/test/effort"
)

// Nothing is ignored: FerretDB leaves no goroutine behind when its Run has returned.
func TestMain(m *testing.M) { effort.Main(m) }

// start runs a server until the end of the test.
func start(t testing.TB, cfg configserver.Config) *configserver.Server {
	t.Helper()
	s, err := configserver.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect returns a client until the end of the test.
func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client
}

// d makes a document of one field.
func d(key string, value any) bson.D { return bson.D{{Key: key, Value: value}} }

// byID makes the filter of one document.
func byID(id string) bson.D { return d("_id", id) }
