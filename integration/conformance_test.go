package integration_test

import (
	"context"
	"errors"
	"slices"
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
)

// The stores of all deployments pass the conformance suite. The store in memory passes the same
// suite, so other tests can use it instead of a server.
//
// The cases share a few databases, because a replica set creates databases slowly. Each case
// empties its database at the end.
func TestCatalog_Conforms(t *testing.T) {
	t.Parallel()
	conform(t, slices.DeleteFunc(slices.Clone(deployments), func(d *deployment) bool {
		return d.name == "configsvr"
	}))
}

// A config server has only one database, which always contains a ping document of MongoDB itself.
// The test must not be parallel, because the suite also deletes the documents of other tests.
func TestCatalog_OfAConfigServer_Conforms(t *testing.T) { conform(t, named("configsvr")) }

func conform(t *testing.T, these []*deployment) {
	t.Helper()
	for _, d := range these {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			d.need(t)
			names := []string{databaseName(), databaseName(), databaseName(), databaseName()}
			if d.own == "config" {
				if d.set == nil {
					t.Skip("the suite empties its database, and this database config is not ours")
				}
				names = []string{"config"}
			}
			free := make(chan string, len(names))
			for _, name := range names {
				assert.Must(t, d.arrange(t.Context(), name))
				free <- name
			}
			catalogtest.Run(t, func(t *testing.T) catalogtest.Store {
				name := <-free
				t.Cleanup(func() { free <- name }) // runs after the store is emptied
				return d.store(t, name)
			})
			if d.own != "config" {
				t.Cleanup(func() {
					for _, name := range names {
						assert.NoErr(t, d.app.Database(name).Drop(context.WithoutCancel(t.Context())))
					}
				})
			}
		})
	}
}

// store returns a store in a database, and empties the database at the end of the test case.
func (d *deployment) store(t *testing.T, database string) catalogtest.Store {
	t.Helper()
	c, err := mongocatalog.New(d.app, mongocatalog.Options{
		Database: database, CommandTimeout: time.Minute, // many cases run in parallel
	})
	assert.Must(t, err)
	db := d.app.Database(database, options.Database().SetWriteConcern(writeconcern.Majority()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		assert.NoErr(t, d.empty(ctx, db))
	})
	return catalogtest.OnServer(c, db)
}

func (d *deployment) empty(ctx context.Context, db *mongo.Database) error {
	if d.set == nil && d.over == nil {
		return db.Drop(ctx) // cheap on these servers
	}
	var errs []error
	for _, c := range []string{catalog.LocksCollection, catalog.PingsCollection} {
		errs = append(errs, assert.Err(db.Collection(c).DeleteMany(ctx, bson.D{})))
	}
	return errors.Join(errs...)
}
