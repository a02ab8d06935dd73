package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// C1, D2, B1: a holder that is cut off from its server learns of the loss before anybody may take
// over; it is taken over when it has been silent for the takeover time; and its late release,
// once the wire is whole again, leaves the new holder's document alone, byte for byte.
func TestCutOffHolder_LosesFirst_IsTakenOver_AndItsLateReleaseTouchesNothing(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name, wire := w.name("balancer"), w.d.through(t)
		holder := w.start(t, func(cfg *distlock.Config) { throughWire(cfg, wire) })
		contender := w.start(t, func(cfg *distlock.Config) { shortTakeover(cfg) })
		t.Cleanup(func() { wire.set(passing) }) // the holder is closed after this
		old := w.mustTry(t, holder, name)

		wire.set(cut)
		next := w.wait(t, contender, name)
		if old.Context().Err() == nil {
			t.Error("the lock has a new holder and the old one's context still lives")
		}
		wantErr(t, old.Err(), distlock.ErrLockLost)
		wantErr(t, context.Cause(old.Context()), distlock.ErrLockLost)
		if next.Fence() <= old.Fence() || next.TakeoverEvidence() == "" {
			t.Errorf("fence %d after %d, evidence %q", next.Fence(), old.Fence(), next.TakeoverEvidence())
		}
		dead := w.document(t, catalog.PingsCollection, old.Process())
		assert.Equal(t, dead.Lookup("condemned", "by").StringValue(), contender.Process(),
			"condemned by %q, want %q")

		wire.set(passing)
		eventually(t, 30*time.Second, "the old holder finds out and takes a new id", func() bool {
			return holder.Err() == nil && holder.Process() != old.Process()
		})
		w.untouched(t, name, func() { wantErr(t, old.Release(), distlock.ErrLockLost) })
		assert.NoErr(t, next.Verify(t.Context()))
		_, err := w.try(t, holder, name)
		if h := heldError(t, err); h.Process != contender.Process() {
			t.Errorf("held by %s, want %s", h.Process, contender.Process())
		}
	})
}

// shortTakeover is for processes of which one is dead or is to die: nobody alive is watched. The
// margin is small, so that the others keep their heartbeat on a loaded machine.
func shortTakeover(cfg *distlock.Config) {
	cfg.Ping, cfg.Takeover = paced(500*time.Millisecond), paced(4*time.Second)
	cfg.Margin, cfg.MaxWatchGap = paced(300*time.Millisecond), paced(3*time.Second)
}

// unhurriedTakeover is for processes that have more to do than to lock: their heartbeat stands
// behind their own commands.
func unhurriedTakeover(cfg *distlock.Config) {
	cfg.Ping, cfg.Takeover = paced(time.Second), paced(12*time.Second)
	cfg.Margin, cfg.MaxWatchGap = paced(time.Second), paced(6*time.Second)
}

// throughWire leads everything of a process through a proxy. Its commands end soon when the wire is
// cut.
func throughWire(cfg *distlock.Config, wire *link) {
	shortTakeover(cfg)
	cfg.Client, cfg.PingClient = nil, nil
	cfg.ClientOptions = options.Client().ApplyURI(wire.uri())
}

// An application that has used up its connection pool, with a command that gets no answer, cannot
// starve the heartbeat: the guard outlives several of its hold times.
func TestHeartbeat_ExhaustedPool_KeepsTheLock(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name, wire := w.name("balancer"), w.d.through(t)
		app := privateClient(t, options.Client().ApplyURI(wire.uri()).SetMaxPoolSize(1))
		m := w.start(t, func(cfg *distlock.Config) {
			cfg.Client, cfg.CommandTimeout, cfg.ReleaseTries = app, 2*time.Second, 1
		})
		t.Cleanup(func() { wire.set(passing) }) // the manager is closed after this
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
		need := int64((cfg.Takeover - cfg.Margin) / cfg.Ping) // as many as fit into a hold time
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
