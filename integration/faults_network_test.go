package integration_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// wired lists the deployments that a process can reach through a link.
var wired = named("embedded", "standalone", "replicaset")

const (
	// freeLimit is the time limit for the release of a lock with an unknown outcome. The release
	// usually takes a ping interval.
	freeLimit = 40 * time.Second
	// leastLimit and mostLimit are the bounds of deployment.commandLimit.
	leastLimit = 3 * time.Second
	mostLimit  = 10 * time.Second
)

// commandLimit returns the command timeout of a process with a bad link. A busy server still
// answers within this time: it is at least 30 times the slowest of some commands that were sent at
// the first call.
func (d *deployment) commandLimit() time.Duration {
	d.measure.Do(func() {
		for range 20 {
			sent := time.Now()
			_ = d.app.Database("admin").RunCommand(context.Background(), bson.D{field("ping", 1)}).Err()
			d.slowest = max(d.slowest, time.Since(sent))
		}
	})
	return min(max(leastLimit, 30*d.slowest), mostLimit)
}

// D1, D3, D4, D6 to D8, I2, I6 to I8: The link fails when an operation is sent, and recovers after
// the operation has returned. The operation has a correct outcome. A lock of another process stays
// held and unchanged.
func TestFaults_BadLinkAtEachOperation(t *testing.T) {
	t.Parallel()
	for op, run := range map[fault.Op]func(t *testing.T, w *world, b *badLink){
		fault.Acquire: badLinkAtAcquire, fault.Ping: badLinkAtPing, fault.Release: badLinkAtRelease,
	} {
		for name, state := range map[string]linkState{
			"cut": cut, "half-open": silent, "replies lost": stalling,
		} {
			t.Run(name+" at "+string(op), func(t *testing.T) {
				t.Parallel()
				forThese(t, wired, func(t *testing.T, w *world) {
					bystander := w.mustTry(t, w.start(t, nil), w.name("bystander"))
					w.untouched(t, bystander.Name(), func() {
						b := w.through(t, op, state)
						run(t, w, b)
						if !b.struck.Load() {
							t.Error("the link did not fail")
						}
					})
					assert.NoErr(t, bystander.Err(), "a lock of another process")
				})
			})
		}
	}
}

// A badLink is the only link of a process to the server. After a call of arm, the link fails when
// the process sends the first write of an operation.
type badLink struct {
	*link
	m      *distlock.Manager
	lost   bool // only replies are lost, so requests are carried out
	arm    func()
	struck atomic.Bool
}

// through starts a process with a badLink. When the process begins the operation op, the link
// changes to the given state.
func (w *world) through(t *testing.T, op fault.Op, state linkState) *badLink {
	t.Helper()
	b := &badLink{link: w.d.through(t), lost: state == stalling}
	var begun atomic.Bool // the operation has begun
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		write := e.CommandName == "findAndModify" || e.CommandName == "update"
		if write && begun.Load() && b.struck.CompareAndSwap(false, true) {
			b.set(state)
		}
	}}
	client := privateClient(t, options.Client().ApplyURI(b.uri()).
		SetServerSelectionTimeout(time.Second).SetMonitor(monitor))
	store, open := w.faulty(t, client, client)
	b.arm = func() { strikeAt(store, op, func() { begun.Store(true) }) }
	b.m = w.start(t, func(cfg *distlock.Config) { open(cfg); cfg.ReleaseTries = 2 })
	t.Cleanup(func() { b.set(passing) }) // runs before the process is closed
	return b
}

// faulty returns a store that sends pings with the client beat and all other commands with the
// other client. So a fail point can select the pings or the other commands. The returned function
// makes a process use this store.
func (w *world) faulty(t testing.TB, client, beat *mongo.Client) (*fault.Catalog,
	func(*distlock.Config)) {
	t.Helper()
	open := func(client *mongo.Client) catalog.Catalog {
		return assert.Value(mongocatalog.New(client, mongocatalog.Options{
			Database: w.db.Name(), CommandTimeout: w.d.commandLimit()}))(t)
	}
	store := fault.Wrap(split{open(client), open(beat)})
	return store, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
		cfg.CommandTimeout = w.d.commandLimit()
	}
}

type split struct {
	catalog.Catalog
	beat catalog.Catalog
}

func (s split) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	return s.beat.Ping(ctx, b)
}

// strikeAt makes a store call the given function once, before its next operation op.
func strikeAt(store *fault.Catalog, op fault.Op, strike func()) {
	var once sync.Once
	store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == op {
			once.Do(strike)
		}
		return apply()
	})
}

func badLinkAtAcquire(t *testing.T, w *world, b *badLink) {
	name := w.name("balancer")
	before := w.mustTry(t, b.m, name)
	wantReleased(t, before)
	b.arm()
	g, err := w.try(t, b.m, name)
	wantNoGuard(t, g, err)
	last := before.Fence()
	if b.lost { // only the reply
		eventually(t, freeLimit, "the lock is acquired", func() bool {
			return w.lock(t, name).Fence > last
		})
		last++
	} else if w.lock(t, name).Fence > last {
		t.Error("the lock was acquired over a broken link")
	}
	b.mend()
	w.wantFreed(t, name)
	if next := w.wait(t, b.m, name).Fence(); next <= last {
		t.Errorf("fence %d after %d", next, last)
	}
}

func badLinkAtPing(t *testing.T, w *world, b *badLink) {
	g := w.mustTry(t, b.m, w.name("balancer"))
	failures := b.m.Stats().Failures
	b.arm()
	eventually(t, 30*time.Second, "a ping fails", func() bool {
		return b.m.Stats().Failures > failures
	})
	b.mend()
	deadline, pings := g.Deadline(), b.m.Stats().Pings
	eventually(t, 30*time.Second, "pings succeed again", func() bool {
		return b.m.Stats().Pings > pings+1
	})
	assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context())))
	if !g.Deadline().After(deadline) || b.m.Stats().Processes != 0 {
		t.Errorf("deadline %v after %v, %+v", g.Deadline(), deadline, b.m.Stats())
	}
}

func badLinkAtRelease(t *testing.T, w *world, b *badLink) {
	name := w.name("balancer")
	g := w.mustTry(t, b.m, name)
	b.arm()
	err := g.Release()
	wantErr(t, g.Err(), distlock.ErrReleased)
	var failed *distlock.ReleaseError
	if !errors.As(err, &failed) || failed.Tries != 2 {
		t.Errorf("%v, want a *ReleaseError after two tries", err)
	}
	if !b.lost {
		b.mend()
		w.wantFreed(t, name)
		return
	}
	w.wantFreed(t, name)
	w.mustTry(t, w.start(t, nil), name) // I6
	w.untouched(t, name, func() {
		b.mend()
		eventually(t, freeLimit, "the late release is finished", func() bool {
			return b.m.Stats().Late > 0
		})
	})
}

// The heartbeat does not use the connection pool of the application. So a guard stays valid even if
// an unanswered command occupies the only connection of that pool.
func TestHeartbeat_ExhaustedPool_KeepsTheLock(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name, wire := w.name("balancer"), w.d.through(t)
		app := privateClient(t, options.Client().ApplyURI(wire.uri()).SetMaxPoolSize(1))
		m := w.start(t, func(cfg *distlock.Config) {
			cfg.Client, cfg.CommandTimeout, cfg.ReleaseTries = app, w.d.commandLimit(), 1
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
		deadline, pings := guard.Deadline(), m.Stats().Pings
		eventually(t, 60*time.Second, "pings succeed", func() bool { return m.Stats().Pings > pings+2 })
		if !guard.Deadline().After(deadline) {
			t.Errorf("the deadline is still %v", deadline)
		}
		assert.NoErr(t, guard.Err())
		_, err := w.try(t, m, w.name("another")) // the pool really is exhausted
		if !errors.Is(err, distlock.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an acquisition without a connection: %v", err)
		}
	})
}

// wantGuard checks that a guard agrees with the lock document, and then releases the guard.
func (w *world) wantGuard(t testing.TB, m *distlock.Manager, g *distlock.TryGuard, err error) {
	t.Helper()
	assert.Must(t, err)
	l := w.lock(t, g.Name())
	if !l.Held || l.TS != g.Session() || l.Fence != g.Fence() || l.Process != m.Process() {
		t.Errorf("the guard is %v, fence %d; the document shows %+v", g.Session(), g.Fence(), l)
	}
	assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context()), g.Release()))
}

// wantNoGuard checks that an acquisition failed with ErrOutcomeUnknown or ErrUnavailable.
func wantNoGuard(t testing.TB, g *distlock.TryGuard, err error) {
	t.Helper()
	if g != nil || err == nil {
		t.Fatalf("a guard (%v) or no error: %v", g, err)
	}
	if !errors.Is(err, distlock.ErrOutcomeUnknown) && !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("%v: want ErrOutcomeUnknown or ErrUnavailable", err)
	}
}

func (w *world) wantFreed(t testing.TB, name string) {
	t.Helper()
	eventually(t, freeLimit, "the lock is free", func() bool {
		raw := w.document(t, catalog.LocksCollection, name)
		return raw == nil || !w.lock(t, name).Held
	})
}
