package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// The heartbeat does not use the connection pool of the application. So a guard stays valid even if
// an unanswered command occupies the only connection of that pool.
func TestHeartbeat_ExhaustedPool_KeepsTheLock(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name, wire := w.name("balancer"), w.d.through(t)
		app := privateClient(t, options.Client().ApplyURI(wire.uri()).SetMaxPoolSize(1))
		m := w.start(t, func(cfg *distlock.Config) {
			cfg.Client, cfg.CommandTimeout, cfg.ReleaseTries = app, 2*time.Second, 1
		})
		t.Cleanup(func() { wire.set(passing) }) // runs before the manager is closed
		guard := w.mustTry(t, m, name)

		wire.set(stalling)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { // ends with ctx
			defer close(ended)
			_ = app.Database(w.db.Name()).Collection("work").FindOne(ctx, byID("x")).Err()
		}()
		defer func() { cancel(); <-ended }()
		eventually(t, 10*time.Second, "the only connection is taken", func() bool {
			return wire.heldBack() > 0
		})
		pings := m.Stats().Pings
		cfg := m.Config()
		need := int64((cfg.Takeover - cfg.Margin) / cfg.Ping) // the number of pings in a hold time
		eventually(t, 60*time.Second, "a whole hold time passes", func() bool {
			return m.Stats().Pings > pings+need
		})
		assert.NoErr(t, guard.Err())
		_, err := w.try(t, m, w.name("another")) // the pool really is exhausted
		if !errors.Is(err, distlock.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an acquisition without a connection: %v", err)
		}
	})
}
