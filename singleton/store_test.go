package singleton_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/singletontest"
	"mongodlm/singleton"
)

func TestMain(m *testing.M) { effort.Main(m) }

// The store in memory passes the same tests as the store in MongoDB.
func TestMemoryStore_Conforms(t *testing.T) {
	t.Parallel()
	singletontest.Run(t, func(*testing.T) singletontest.Store {
		s := singleton.NewMemoryStore(nil)
		put := func(_ context.Context, in string, doc bson.D) error { return s.Put(in, doc) }
		return singletontest.Store{Store: s, Put: put}
	})
}
