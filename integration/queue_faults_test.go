package integration_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// wantTurns releases g and then the guard of each waiter. It checks that the waiters acquire the
// lock in order, with rising fences.
func wantTurns(t testing.TB, g *distlock.TryGuard, waiters ...<-chan turn) {
	t.Helper()
	last := g.Fence()
	for i, done := range waiters {
		wantReleased(t, g)
		if g = wantTurn(t, done); g.Fence() <= last {
			t.Errorf("turn %d: fence %d after %d", i, g.Fence(), last)
		}
		last = g.Fence()
		for _, later := range waiters[i+1:] {
			wantWaiting(t, later)
		}
	}
	wantReleased(t, g)
}

// If the change streams of waiters fail in the server, the waiters still find their grants. The
// test must not be parallel, because a server has one fail point for commands.
func TestLock_ServerFailsStreams_GrantsAreFound(t *testing.T) {
	inTurn(t, named("replicaset"), func(t *testing.T, w *world) {
		for _, c := range []struct {
			name string
			data bson.D
		}{
			{"getMore fails", bson.D{field("failCommands", bson.A{"getMore"}), field("errorCode", 11601)}},
			{"getMore cuts", bson.D{field("failCommands", bson.A{"getMore"}),
				field("closeConnection", true)}},
			{"history lost", bson.D{field("failCommands", bson.A{"getMore"}), field("errorCode", 286)}},
			{"no stream opens", bson.D{field("failCommands", bson.A{"aggregate"}), field("errorCode", 8)}},
			{"opening takes long", bson.D{field("failCommands", bson.A{"aggregate"}),
				field("blockConnection", true), field("blockTimeMS", 1500)}},
		} {
			t.Run(c.name, func(t *testing.T) {
				name, app := w.name(c.name), "waits-"+bson.NewObjectID().Hex()
				holder := w.start(t, nil)
				client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetAppName(app))
				m := w.start(t, func(cfg *distlock.Config) { cfg.Client = client })
				g := w.mustTry(t, holder, name)
				failing := func(mode any) int64 {
					raw, err := w.d.app.Database("admin").RunCommand(t.Context(), bson.D{
						field("configureFailPoint", "failCommand"), field("mode", mode),
						field("data", append(slices.Clone(c.data), field("appName", app))),
					}).Raw()
					assert.Must(t, err)
					return raw.Lookup("count").AsInt64()
				}
				before := failing("alwaysOn")
				t.Cleanup(func() {
					_ = w.d.app.Database("admin").RunCommand(context.WithoutCancel(t.Context()),
						bson.D{field("configureFailPoint", "failCommand"), field("mode", "off")}).Err()
				})
				var waiters []<-chan turn
				for range 2 {
					waiters = append(waiters, w.queue(t, m, name))
				}
				begun := time.Now()
				wantTurns(t, g, waiters...)
				t.Logf("two turns took %v", time.Since(begun))
				if n := failing("off") - before; n == 0 {
					t.Error("the server failed no command")
				}
				last := w.mustTry(t, holder, name)
				wantTurns(t, last, w.queue(t, m, name))
			})
		}
	})
}

// If the primary steps down while three callers wait, they acquire the lock in order, because the
// new primary has the same queue.
func TestStepDown_WhileThreeWait_AllHaveTheirTurnInOrder(t *testing.T) {
	inTurn(t, named("replicaset"), func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder, a, b := w.start(t, nil), w.start(t, nil), w.start(t, nil)
		g := w.mustTry(t, holder, name)
		waiters := []<-chan turn{w.queue(t, a, name), w.queue(t, b, name), w.queue(t, a, name)}
		assert.Must(t, w.d.set.StepDown(t.Context()))
		released := make(chan error, 1)
		go func() { released <- g.Release() }() // waited for below
		assert.Value(w.d.set.Primary(t.Context()))(t)
		first := wantTurn(t, waiters[0])
		if err := <-released; err != nil {
			t.Logf("Release: %v", err) // the release continues in the background
		}
		if first.Fence() <= g.Fence() {
			t.Errorf("fence %d after %d", first.Fence(), g.Fence())
		}
		wantTurns(t, first, waiters[1:]...)
	})
}
