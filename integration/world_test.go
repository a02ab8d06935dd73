package integration_test

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
)

// A world is the part of a deployment that one test uses: a separate database, or unique names in a
// shared database.
type world struct {
	d      *deployment
	db     *mongo.Database
	prefix string // the start of every lock name and process id

	mu   sync.Mutex // guards kept
	kept []*distlock.TryGuard
}

func (d *deployment) open(t testing.TB) *world {
	t.Helper()
	d.need(t)
	d.slots <- struct{}{}
	t.Cleanup(func() { <-d.slots }) // runs last
	return d.in(t, cmp.Or(d.own, databaseName()))
}

// in returns a world in the given database of the deployment.
func (d *deployment) in(t testing.TB, database string) *world {
	t.Helper()
	w := &world{d: d}
	if database == d.own || database == "config" {
		w.prefix = bson.NewObjectID().Hex() + "-"
	}
	w.db = d.app.Database(database, options.Database().SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	t.Cleanup(func() {
		assert.NoErr(t, w.clean(context.WithoutCancel(t.Context())), "cleaning up")
		w.mu.Lock() // a late call of Lock may still append its guard
		defer w.mu.Unlock()
		runtime.KeepAlive(w.kept) // the garbage collector releases an unreachable guard
	})
	return w
}

func (w *world) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if w.prefix == "" {
		return w.db.Drop(ctx)
	}
	mine := bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^" + w.prefix}}}}
	_, locks := w.db.Collection(catalog.LocksCollection).DeleteMany(ctx, mine)
	_, pings := w.db.Collection(catalog.PingsCollection).DeleteMany(ctx, mine)
	mine[0].Key = "name"
	_, past := w.db.Collection(history.Collection).DeleteMany(ctx, mine)
	return errors.Join(locks, pings, past)
}

// name returns a lock name or process id that no other test uses.
func (w *world) name(s string) string { return w.prefix + s }

// config returns the configuration of a process. The times are long, so that holders keep their
// locks on a loaded machine.
func (w *world) config() distlock.Config {
	return distlock.Config{
		Client: w.d.app, PingClient: w.d.beat, Database: w.db.Name(), Host: w.prefix + "host",
		Ping: time.Second, Takeover: time.Minute, CommandTimeout: 20 * time.Second,
		Tuning: distlock.Tuning{ReleasePause: 50 * time.Millisecond},
	}
}

// A slow process has a long ping interval, a long takeover time and a constant poll interval.
func slow(cfg *distlock.Config) {
	cfg.Ping, cfg.Takeover, cfg.Margin = 10*time.Second, 10*time.Minute, 0
	cfg.Poll, cfg.PollMax, cfg.CommandTimeout = 500*time.Millisecond, 500*time.Millisecond, time.Minute
}

// start starts a process. The end of the test closes it.
func (w *world) start(t testing.TB, change func(*distlock.Config)) *distlock.Manager {
	t.Helper()
	m := w.startUnclosed(t, change)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 60*time.Second)
		defer cancel()
		assert.NoErr(t, m.Close(ctx), "closing the manager")
	})
	return m
}

func (w *world) startUnclosed(t testing.TB, change func(*distlock.Config)) *distlock.Manager {
	t.Helper()
	cfg := w.config()
	if change != nil {
		change(&cfg)
	}
	return newManager(t, cfg)
}

// newManager starts a process. If the server answers too late, newManager tries again for up to
// five minutes.
func newManager(t testing.TB, cfg distlock.Config) *distlock.Manager {
	t.Helper()
	m, err := distlock.New(t.Context(), cfg)
	late := func() bool {
		return errors.Is(err, distlock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	}
	for start := time.Now(); late() && time.Since(start) < 5*time.Minute; {
		m, err = distlock.New(t.Context(), cfg)
	}
	assert.Must(t, err)
	return m
}

// try calls TryLock, and keeps the guard reachable until the end of the test.
func (w *world) try(t testing.TB, m *distlock.Manager, name string, opts ...distlock.Option) (
	*distlock.TryGuard, error) {
	t.Helper()
	g, err := m.Lock(name).TryLock(t.Context(), opts...)
	w.keep(g)
	return g, err
}

func (w *world) mustTry(t testing.TB, m *distlock.Manager, name string) *distlock.TryGuard {
	t.Helper()
	g, err := w.try(t, m, name)
	if err != nil {
		t.Fatalf("TryLock(%q): %v", name, err)
	}
	return g
}

// wait calls Lock for at most 90 seconds, and keeps the guard reachable until the end of the test.
func (w *world) wait(t testing.TB, m *distlock.Manager, name string) *distlock.TryGuard {
	t.Helper()
	g, err := m.Lock(name).Lock(t.Context(), distlock.WaitAtMost(90*time.Second))
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	w.keep(g)
	return g
}

func (w *world) keep(g *distlock.TryGuard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, g)
}

func (w *world) document(t testing.TB, collection, id string) bson.Raw {
	t.Helper()
	raw, err := w.db.Collection(collection).FindOne(t.Context(), byID(id)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil
	}
	if err != nil {
		t.Fatalf("reading %s %q: %v", collection, id, err)
	}
	return raw
}

func (w *world) lock(t testing.TB, name string) catalog.Lock {
	t.Helper()
	l, bad := catalog.ParseLock(w.document(t, catalog.LocksCollection, name))
	if bad != nil {
		t.Fatal(bad)
	}
	return l
}

// plant inserts or replaces a document directly in its collection.
func (w *world) plant(t testing.TB, collection string, doc bson.D) {
	t.Helper()
	_, err := w.db.Collection(collection).ReplaceOne(t.Context(), byID(doc[0].Value.(string)), doc,
		options.Replace().SetUpsert(true))
	if err != nil {
		t.Fatalf("planting in %s: %v", collection, err)
	}
}

// untouched calls the given function, and checks that it does not change a byte of the lock
// document.
func (w *world) untouched(t testing.TB, name string, do func()) {
	t.Helper()
	before := w.document(t, catalog.LocksCollection, name)
	do()
	after := w.document(t, catalog.LocksCollection, name)
	assert.Slices(t, before, after, "the document was changed\nbefore %v\nafter  %v")
}

func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

func set(fields ...bson.E) bson.D { return bson.D{field("$set", bson.D(fields))} }

func field(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

// eventually waits until the condition is true. The pauses between its checks grow, because most
// conditions send commands to the server.
func eventually(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	for begun := time.Now(); !cond(); {
		waited := time.Since(begun)
		if waited > limit {
			t.Fatalf("still not after %v: %s", limit, what)
		}
		select {
		case <-time.After(min(max(waited/10, 20*time.Millisecond), 250*time.Millisecond)):
		case <-t.Context().Done():
			t.Fatalf("the test ended before: %s", what)
		}
	}
}

const standstill = 10 * time.Minute

var wantErr, heldError = assert.Is, locktest.WantHeld

// client returns a new client of the deployment. The tape records the commands of the client.
func (w *world) client(t testing.TB, sent *tape) *mongo.Client {
	t.Helper()
	return privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
}

// privateClient returns a client and disconnects it at the end of the test.
func privateClient(t testing.TB, opts *options.ClientOptions) *mongo.Client {
	t.Helper()
	client := assert.Value(mongo.Connect(opts))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Second)
		defer cancel() // Disconnect may wait for a server that has ended
		assert.NoErr(t, client.Disconnect(ctx))
	})
	return client
}
