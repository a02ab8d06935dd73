package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// The operations send few commands:
//   - An uncontended TryLock, a Release and a renewal send one command each. A renewal on the
//     embedded server sends two.
//   - A TryLock of a held lock sends two commands to a mongod, three to a mongos, and four to the
//     embedded server.
func TestCommands_OfAcquiringAndReleasing(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		var sent counter
		m := w.counted(t, &sent, slow) // slow prevents a check for silent holders
		other := w.start(t, slow)
		assert.Must(t, w.mustTry(t, m, name).Release()) // also seeds the fence
		sent.reset()
		guard := w.mustTry(t, m, name)
		wantCommands(t, "TryLock of a free lock", &sent, 1)
		assert.Must(t, guard.Release())
		wantCommands(t, "Release", &sent, 1)

		renewal := 1
		if m.Stats().Server.Kind == string(catalog.FerretDB) {
			renewal = 2
		}
		guard = assert.Value(w.try(t, m, name, distlock.Lease(time.Minute)))(t)
		wantCommands(t, "TryLock with a lease", &sent, 1+renewal)
		assert.Must(t, guard.Renew(t.Context()))
		wantCommands(t, "Renew", &sent, renewal)
		assert.Must(t, guard.Release())

		w.mustTry(t, other, name)
		_, err := w.try(t, m, name) // the first read also asks for the server's kind
		heldError(t, err)
		sent.reset()
		_, err = w.try(t, m, name)
		heldError(t, err)
		more := map[string]int{string(catalog.Mongos): 1, string(catalog.FerretDB): 2}
		want := 2 + more[m.Stats().Server.Kind]
		wantCommands(t, "TryLock of a lock with a live holder", &sent, want)
	})
}

func wantCommands(t testing.TB, what string, sent *counter, want int) {
	t.Helper()
	if sent.total() != want {
		t.Errorf("%s: want %d commands, got %v", what, want, sent)
	}
	sent.reset()
}

// large lists the deployments for tests with many documents. The embedded server is too slow for
// them.
var large = named("standalone", "replicaset", "configsvr", "mongos", "sharded")

// holdMany starts a process that holds count locks. sent counts its commands. At the end the
// process does not release the locks, to save time.
func (w *world) holdMany(t testing.TB, count int, sent *counter) (
	*distlock.Manager, []*distlock.TryGuard) {
	t.Helper()
	client := w.client(t, sent)
	inner, err := mongocatalog.New(client, mongocatalog.Options{
		Database: w.db.Name(), CommandTimeout: time.Minute, // fifty acquisitions run in parallel
	})
	assert.Must(t, err)
	store := fault.Wrap(inner)
	m := w.start(t, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
		cfg.Ping, cfg.Takeover = 500*time.Millisecond, 2*time.Minute
	})
	t.Cleanup(func() { store.Set(pretend(fault.Release)) }) // runs before the manager is closed
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

// pretend returns a hook that reports success for op without executing it.
func pretend(op fault.Op) fault.Hook {
	return func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == op {
			return nil
		}
		return apply()
	}
}

// acquireMany inserts the documents of the locks with the numbers first to last-1. It then acquires
// these locks in parallel, with one command each.
func (w *world) acquireMany(
	t testing.TB, m *distlock.Manager, first, last int,
) []*distlock.TryGuard {
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
