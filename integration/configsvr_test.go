package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// lockBusy is the error code of a command that waits too long for MongoDB's lock manager.
const lockBusy = 46

// Config servers of 3.2 to 6.0 run MongoDB's lock manager on the collections of distlock. This lock
// manager and distlock respect each other's locks:
//   - createDatabase waits while distlock holds the lock of the database or has waiters for it.
//   - After the release MongoDB's lock manager acquires the lock. It keeps distlock's fields.
//   - After that distlock can acquire the lock again.
func TestConfigServer_OwnLockManagerAndOurs_RespectEachOther(t *testing.T) {
	t.Parallel()
	forThese(t, named("configsvr"), func(t *testing.T, w *world) {
		name := "bar" + bson.NewObjectID().Hex()[12:] // a database that does not exist
		t.Cleanup(func() { w.forget(t, name) })
		m, other := w.start(t, nil), w.start(t, nil)
		guard := assert.Value(w.try(t, m, name, distlock.Why("holding it against createDatabase")))(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		created := make(chan error, 1)
		go func() { created <- w.createDatabase(ctx, name) }() // ends after 20 s or with ctx
		w.untouched(t, name, func() {
			select {
			case err := <-created:
				t.Fatalf("createDatabase did not wait for our lock: %v", err)
			case <-time.After(3 * time.Second): // six polls of MongoDB's manager
			}
		})
		for range 2 {
			first, second := w.queue(t, other, name), w.queue(t, m, name)
			for _, done := range []<-chan turn{first, second} {
				wantReleased(t, guard)
				guard = wantTurn(t, done)
				select {
				case err := <-created:
					t.Fatalf("createDatabase did not wait for our queue: %v", err)
				case <-time.After(600 * time.Millisecond): // one poll of MongoDB's manager
				}
				assert.Must(t, guard.Verify(t.Context()))
			}
		}
		wantReleased(t, guard)
		ours := w.document(t, catalog.LocksCollection, name)
		w.meetTheOther(t, name, created)

		left := w.document(t, catalog.LocksCollection, name)
		for _, field := range []string{"fence", "takeoverMS", "rev"} {
			if !left.Lookup(field).Equal(ours.Lookup(field)) {
				t.Errorf("%s was changed from %v to %v", field, ours.Lookup(field), left.Lookup(field))
			}
		}
		l := w.lock(t, name)
		if l.Held || l.Process != "ConfigServer" || l.Why != "createDatabase" {
			t.Errorf("the document of MongoDB's manager is parsed as %+v", l)
		}
		if next := w.mustTry(t, m, name); next.Fence() <= guard.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), guard.Fence())
		}
	})
}

// meetTheOther waits until createDatabase returns. Meanwhile it logs the lock document while
// MongoDB's lock manager holds the lock.
func (w *world) meetTheOther(t *testing.T, name string, created <-chan error) {
	t.Helper()
	for {
		select {
		case err := <-created:
			var server mongo.CommandError
			if errors.As(err, &server) && server.HasErrorCode(lockBusy) {
				t.Errorf("createDatabase did not get the released lock: %v", err)
			}
			t.Logf("createDatabase, after its turn: %v", err) // cannot succeed without shards
			return
		case <-time.After(10 * time.Millisecond):
			if l := w.lock(t, name); l.Held {
				t.Logf("MongoDB's manager holds the lock: %+v", l)
			}
		}
	}
}

// createDatabase sends the command with which a mongos creates a database.
func (w *world) createDatabase(ctx context.Context, name string) error {
	return w.d.app.Database("admin").RunCommand(ctx, bson.D{
		field("_configsvrCreateDatabase", name),
		field("writeConcern", bson.D{field("w", "majority"), field("wtimeout", 60_000)}),
	}).Err()
}

func (w *world) forget(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	assert.NoErr(t, assert.Err(w.db.Collection(catalog.LocksCollection).DeleteOne(ctx, byID(name))))
}

// On a config server, New refuses a takeover time above fifteen minutes, because MongoDB's lock
// manager takes a lock over after fifteen minutes.
func TestConfigServer_TakeoverAboveFifteenMinutes_IsRefused(t *testing.T) {
	t.Parallel()
	forThese(t, named("configsvr"), func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.Takeover = 16 * time.Minute
		wantErr(t, assert.Err(distlock.New(t.Context(), cfg)), distlock.ErrConfig)
	})
}
