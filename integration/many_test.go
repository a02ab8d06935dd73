package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// holdMany starts a process that holds many locks, whose commands are counted. They are not
// released one by one at the end: that would take as long again and is another promise.
func (w *world) holdMany(t testing.TB, count int, sent *counter) (
	*distlock.Manager, []*distlock.TryGuard) {
	t.Helper()
	client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
	inner, err := mongocatalog.New(client, mongocatalog.Options{
		Database: w.db.Name(), CommandTimeout: time.Minute, // fifty acquire at once
	})
	assert.Must(t, err)
	store := fault.Wrap(inner)
	m := w.start(t, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
		cfg.Ping, cfg.Takeover = 500*time.Millisecond, 2*time.Minute
	})
	t.Cleanup(func() { store.Set(pretend(fault.Release)) }) // before the manager is closed
	const batch = 50
	var guards []*distlock.TryGuard
	for first := 0; first < count; first += batch {
		guards = append(guards, w.acquireMany(t, m, first, min(first+batch, count))...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, guards...)
	return m, guards
}

// pretend answers operations as done without doing them.
func pretend(op fault.Op) fault.Hook {
	return func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == op {
			return nil
		}
		return apply()
	}
}

// acquireMany takes the locks from first to before last, all at once. They existed before, so that
// each costs one command.
func (w *world) acquireMany(t testing.TB, m *distlock.Manager, first, last int) []*distlock.TryGuard {
	t.Helper()
	name := func(i int) string { return w.name(fmt.Sprintf("lock-%05d", i)) }
	var docs []bson.D
	for i := first; i < last; i++ {
		docs = append(docs, bson.D{field("_id", name(i)), field("state", int32(0)),
			field("fence", int64(1)<<40), field("rev", int64(1))})
	}
	assert.Value(w.db.Collection(catalog.LocksCollection).InsertMany(t.Context(), docs))(t)
	guards, errs := make([]*distlock.TryGuard, last-first), make([]error, last-first)
	var acquiring sync.WaitGroup
	for i := range guards {
		acquiring.Go(func() { guards[i], errs[i] = m.Lock(name(first + i)).TryLock(t.Context()) })
	}
	acquiring.Wait()
	assert.Must(t, errors.Join(errs...))
	return guards
}
