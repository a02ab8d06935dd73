package mongocatalog_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/goleak"

	"mongodlm/catalog/catalogtest"
	"mongodlm/catalog/memcatalog"
	"mongodlm/catalog/mongocatalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a client for the server that MONGODLM_TEST_URI names, and skips without it.
func connect(t *testing.T) *mongo.Client {
	t.Helper()
	uri := os.Getenv("MONGODLM_TEST_URI")
	if uri == "" {
		t.Skip("MONGODLM_TEST_URI is not set: it names a server on which databases " +
			"mongodlm_test_* may be made and dropped")
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// open returns a store in a database of its own, which is dropped when the test ends.
func open(t *testing.T, client *mongo.Client) catalogtest.Store {
	t.Helper()
	// What is planted must be there for a majority read.
	db := client.Database("mongodlm_test_"+bson.NewObjectID().Hex(),
		options.Database().SetWriteConcern(writeconcern.Majority()))
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	c, err := mongocatalog.New(client, mongocatalog.Options{Database: db.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return catalogtest.Store{
		Catalog: c,
		Insert: func(ctx context.Context, collection string, doc bson.D) error {
			_, err := db.Collection(collection).InsertOne(ctx, doc)
			return err
		},
		Delete: func(ctx context.Context, collection, id string) error {
			_, err := db.Collection(collection).DeleteOne(ctx, bson.D{{Key: "_id", Value: id}})
			return err
		},
		Document: func(ctx context.Context, collection, id string) (bson.Raw, error) {
			raw, err := db.Collection(collection).FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
			if errors.Is(err, mongo.ErrNoDocuments) {
				return nil, nil
			}
			return raw, err
		},
	}
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
	memory := memcatalog.New(memcatalog.Options{})
	catalogtest.RunDifferential(t, open(t, client), catalogtest.Store{
		Catalog: memory,
		Insert: func(_ context.Context, collection string, doc bson.D) error {
			return memory.Put(collection, doc)
		},
		Delete: func(_ context.Context, collection, id string) error {
			memory.Remove(collection, id)
			return nil
		},
		Document: func(_ context.Context, collection, id string) (bson.Raw, error) {
			return memory.Document(collection, id), nil
		},
	})
}
