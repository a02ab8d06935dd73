package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
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
	if err != nil {
		t.Fatal(err)
	}
	store := fault.Wrap(inner)
	m := w.start(t, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
		cfg.Ping, cfg.Takeover = 500*time.Millisecond, 2*time.Minute
	})
	t.Cleanup(func() { store.Set(pretend(fault.Release)) }) // before the manager is closed
	h := hoard{world: w, m: m, stash: m.Stats().Server.Kind == string(catalog.FerretDB)}
	if h.stash {
		store.Set(fail(fault.Held, fault.HeldSummary)) // the reaper would miss what is put aside
	}
	batch := 50
	if h.stash {
		batch = 10
	}
	for first := 0; first < count; first += batch {
		h.acquire(t, first, min(first+batch, count))
	}
	h.bringBack(t)
	store.Set(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, h.guards...)
	return m, h.guards
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

// fail refuses operations.
func fail(ops ...fault.Op) fault.Hook {
	return func(_ context.Context, call fault.Call, apply func() error) error {
		for _, op := range ops {
			if call.Op == op {
				return fault.Refused(op)
			}
		}
		return apply()
	}
}

// A hoard acquires many locks. A command of the embedded server costs the more the larger the
// collection is, so there the documents of locks that are held are put aside meanwhile.
type hoard struct {
	*world
	m      *distlock.Manager
	stash  bool
	aside  []bson.Raw
	guards []*distlock.TryGuard
}

// acquire takes the locks from first to before last, all at once. They existed before, so that each
// costs one command.
func (h *hoard) acquire(t testing.TB, first, last int) {
	t.Helper()
	locks := h.db.Collection(catalog.LocksCollection)
	name := func(i int) string { return h.name(fmt.Sprintf("lock-%05d", i)) }
	var docs []bson.D
	for i := first; i < last; i++ {
		docs = append(docs, bson.D{field("_id", name(i)), field("state", int32(0)),
			field("fence", int64(1)<<40), field("rev", int64(1))})
	}
	if _, err := locks.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	guards := make([]*distlock.TryGuard, last-first)
	errs := make([]error, last-first)
	var acquiring sync.WaitGroup
	for i := range guards {
		acquiring.Go(func() {
			guards[i], errs[i] = h.m.Lock(name(first + i)).TryLock(t.Context())
		})
	}
	acquiring.Wait()
	h.guards = append(h.guards, guards...)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !h.stash {
		return
	}
	cursor, err := locks.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var held []bson.Raw
	if err := cursor.All(t.Context(), &held); err != nil {
		t.Fatal(err)
	}
	h.aside = append(h.aside, held...)
	if _, err := locks.DeleteMany(t.Context(), bson.D{}); err != nil {
		t.Fatal(err)
	}
}

// bringBack inserts what was put aside, a little at a time: heartbeats wait behind it.
func (h *hoard) bringBack(t testing.TB) {
	t.Helper()
	const batch = 100
	for first := 0; first < len(h.aside); first += batch {
		docs := h.aside[first:min(first+batch, len(h.aside))]
		if _, err := h.db.Collection(catalog.LocksCollection).InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
	}
}
