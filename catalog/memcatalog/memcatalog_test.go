package memcatalog_test

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"mongodlm/catalog/catalogtest"
	"mongodlm/catalog/memcatalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(*testing.T) catalogtest.Store {
	c := memcatalog.New(memcatalog.Options{})
	return catalogtest.Store{
		Catalog: c,
		Insert: func(_ context.Context, collection string, doc bson.D) error {
			if id, ok := doc[0].Value.(string); ok && c.Document(collection, id) != nil {
				return fmt.Errorf("there is a %q in %s", id, collection)
			}
			return c.Put(collection, doc)
		},
		Delete: func(_ context.Context, collection, id string) error {
			c.Remove(collection, id)
			return nil
		},
		Document: func(_ context.Context, collection, id string) (bson.Raw, error) {
			return c.Document(collection, id), nil
		},
	}
}

func TestCatalog_Conforms(t *testing.T) {
	t.Parallel()
	catalogtest.Run(t, open)
}

// The differential test itself must find nothing between two of the same kind.
func TestCatalog_DoesAsItself(t *testing.T) {
	t.Parallel()
	catalogtest.RunDifferential(t, open(t), open(t))
}
