package integration_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// An Inspector with a connection of its own sees what processes hold, breaks it, and leaves no ping
// behind.
func TestInspector_OwnConnection_LooksAndBreaks(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m, name := w.start(t, nil), w.name("inspected")
		g := assert.Value(w.try(t, m, name, distlock.Why("work")))(t)
		i, err := distlock.NewInspector(t.Context(), distlock.Config{URI: w.d.uri, Database: w.db.Name()})
		assert.Must(t, err)
		holders, waiters, err := i.Holder(t.Context(), name)
		if err != nil || len(holders) != 1 || len(waiters) != 0 || holders[0].Session != g.Session() ||
			!holders[0].HasPing || holders[0].Self || holders[0].Why != "work" {
			t.Errorf("%+v, %+v, %v", holders, waiters, err)
		}
		now, err := i.Break(t.Context(), name, g.Fence(), "test")
		if err != nil || len(now) != 1 || now[0].Held {
			t.Errorf("Break: %+v, %v", now, err)
		}
		assert.NoErr(t, i.Close(t.Context()), "Close")
		if _, _, err := i.Holder(t.Context(), name); !errors.Is(err, distlock.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		n, err := w.db.Collection(catalog.PingsCollection).CountDocuments(t.Context(),
			bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: m.Process()}}},
				{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^" + w.prefix}}}})
		if err != nil || n != 0 {
			t.Errorf("%d pings of others, %v", n, err)
		}
		if err := m.Inspector().Close(t.Context()); err != nil || m.Err() != nil {
			t.Errorf("closing the Manager's Inspector: %v, %v", err, m.Err())
		}
	})
}
