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

// lockBusy is the error code of MongoDB's lock manager after an unsuccessful wait.
const lockBusy = 46

// Config servers of 3.2 to 6.0 run MongoDB's lock manager on the same collections. MongoDB's
// manager and distlock respect each other:
//   - createDatabase waits while distlock holds the lock of the database, and until its queue is
//     empty, because the lock is never free during a hand-over.
//   - MongoDB's manager gets the lock after the release and leaves distlock's fields unchanged.
//   - distlock can acquire the lock afterwards.
func TestConfigServer_OwnLockManagerAndOurs_RespectEachOther(t *testing.T) {
	t.Parallel()
	forThese(t, named("configsvr"), func(t *testing.T, w *world) {
		name := "bar" + bson.NewObjectID().Hex()[12:] // a database that does not exist
		t.Cleanup(func() { w.forget(t, name) })
		m, other := w.start(t, calm), w.start(t, calm)
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
			t.Errorf("its document is understood as %+v", l)
		}
		if next := w.mustTry(t, m, name); next.Fence() <= guard.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), guard.Fence())
		}
	})
}

// meetTheOther waits until createDatabase returns, and logs the lock document if it finds the lock
// held. It only reads, so the document of MongoDB's manager remains for the caller's checks.
func (w *world) meetTheOther(t *testing.T, name string, created <-chan error) {
	t.Helper()
	for {
		select {
		case err := <-created:
			var server mongo.CommandError
			if errors.As(err, &server) && server.HasErrorCode(lockBusy) {
				t.Errorf("it did not get the lock that we had released: %v", err)
			}
			t.Logf("createDatabase, after its turn: %v", err) // cannot succeed without shards
			return
		case <-time.After(10 * time.Millisecond):
			if l := w.lock(t, name); l.Held {
				t.Logf("met it while it held the lock: %+v", l)
			}
		}
	}
}

// createDatabase sends the config server a mongos's command for a new database.
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

// New refuses a takeover time above fifteen minutes on a config server, because MongoDB's manager
// takes over after fifteen minutes.
func TestConfigServer_TakeoverAboveFifteenMinutes_IsRefused(t *testing.T) {
	t.Parallel()
	forThese(t, named("configsvr"), func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.Takeover = 16 * time.Minute
		wantErr(t, assert.Err(distlock.New(t.Context(), cfg)), distlock.ErrConfig)
	})
}
