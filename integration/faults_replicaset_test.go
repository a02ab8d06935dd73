package integration_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/mongodtest"
)

// Locks survive the faults of a replica set. The cases run one after the other on a separate
// replica set with quick elections.
func TestFaults_ReplicaSet(t *testing.T) {
	t.Parallel()
	d := &deployment{name: "failing replicaset", most: 1,
		setUp: mongod(mongodtest.Options{ReplicaSet: 3})}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		assert.NoErr(t, d.close(ctx))
	})
	startAll() // the shared deployments first
	d.start()
	c := &cluster{w: d.open(t), set: d.set}
	c.quickElections(t)
	terms := c.term(t)
	elected := 0 // E1, E6, E7
	for _, op := range []fault.Op{fault.Acquire, fault.Ping, fault.Release} {
		t.Run("stepped down at "+string(op), func(t *testing.T) { c.primaryGoes(t, op, c.stepDown) })
		t.Run("killed at "+string(op), func(t *testing.T) { c.primaryGoes(t, op, c.killPrimary) })
		elected += 2
	}
	t.Run("killed before replication", c.rolledBack)  // E2
	t.Run("secondary frozen", c.secondaryFrozen)      // E4
	t.Run("old primary still believes", c.oldPrimary) // E3
	t.Run("all members restarted", c.allRestarted)    // C10
	if n := c.term(t) - terms; n < int64(elected) {
		t.Errorf("%d elections, want at least %d", n, elected)
	} else {
		t.Logf("%d elections", n)
	}
}

type cluster struct {
	w     *world
	set   *mongodtest.Deployment
	names int
}

// The returned client connects to one member only.
func (c *cluster) at(t testing.TB, node int) *mongo.Client {
	t.Helper()
	return privateClient(t, options.Client().SetServerSelectionTimeout(5*time.Second).
		ApplyURI("mongodb://"+c.set.Addr(node)+"/?directConnection=true"))
}

func (c *cluster) primary(t testing.TB) int {
	t.Helper()
	return assert.Value(c.set.Primary(t.Context()))(t)
}

func (c *cluster) admin(t testing.TB, client *mongo.Client, command bson.D) bson.Raw {
	t.Helper()
	raw, err := client.Database("admin").RunCommand(t.Context(), command).Raw()
	if err != nil {
		t.Fatalf("%s: %v", command[0].Key, err)
	}
	return raw
}

func (c *cluster) quickElections(t *testing.T) {
	primary := c.at(t, c.primary(t))
	var config bson.M
	assert.Must(t, bson.Unmarshal(c.admin(t, primary, bson.D{field("replSetGetConfig", 1)}).
		Lookup("config").Document(), &config))
	config["version"] = config["version"].(int32) + 1
	config["settings"] = bson.D{field("electionTimeoutMillis", 1500),
		field("heartbeatIntervalMillis", 400), field("heartbeatTimeoutSecs", 1),
		field("catchUpTimeoutMillis", 500), field("chainingAllowed", false)}
	c.admin(t, primary, bson.D{field("replSetReconfig", config)})
}

// term returns the number of elections so far.
func (c *cluster) term(t *testing.T) int64 {
	raw := c.admin(t, c.at(t, c.primary(t)), bson.D{field("replSetGetStatus", 1)})
	return raw.Lookup("term").AsInt64()
}

// whole waits until the replica set has a primary and two secondaries.
func (c *cluster) whole(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, "a primary and two secondaries", func() bool {
		reply, err := c.w.d.app.Database("admin").RunCommand(t.Context(),
			bson.D{field("replSetGetStatus", 1)}).Raw()
		if err != nil {
			return false
		}
		states := map[int64]int{}
		for i := range 3 {
			state, _ := reply.Lookup("members", fmt.Sprint(i), "state").AsInt64OK()
			states[state]++
		}
		return states[1] == 1 && states[2] == 2
	})
}

// stepDown makes the primary step down. The returned function does nothing, because the member
// recovers by itself.
func (c *cluster) stepDown(t *testing.T, node int) func() {
	err := c.at(t, node).Database("admin").RunCommand(t.Context(), bson.D{
		field("replSetStepDown", 3), field("secondaryCatchUpPeriodSecs", 2)}).Err()
	assert.NoErr(t, err, "step down")
	return func() {}
}

func (c *cluster) killPrimary(t *testing.T, node int) func() {
	c.set.Kill(node)
	return func() {
		assert.Must(t, c.set.Restart(t.Context(), node))
	}
}

// process starts a process, and returns its store and its Manager. If client is nil, the process
// gets a new client of the whole set.
func (c *cluster) process(t *testing.T, client *mongo.Client, change func(*distlock.Config)) (
	*fault.Catalog, *distlock.Manager) {
	t.Helper()
	if client == nil {
		client = privateClient(t, options.Client().ApplyURI(c.w.d.uri).SetAppName("process-of-"+t.Name()))
	}
	store, open := c.w.faulty(t, client, c.w.d.beat)
	m := c.w.startUnclosed(t, func(cfg *distlock.Config) {
		open(cfg)
		cfg.CommandTimeout = 5 * time.Second
		if change != nil {
			change(cfg)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := m.Close(ctx); err != nil { // a former primary accepts no write
			t.Logf("closing: %v", err)
		}
	})
	return store, m
}

func (c *cluster) name() string {
	c.names++
	return c.w.name(fmt.Sprintf("lock-%d", c.names))
}

// primaryGoes calls the given function, which removes the primary, while the primary executes a
// command of the operation op. The function returns another function, which brings the primary
// back. A lock that another process holds must stay held.
func (c *cluster) primaryGoes(t *testing.T, op fault.Op, how func(*testing.T, int) func()) {
	c.whole(t)
	w, name := c.w, c.name()
	_, other := c.process(t, nil, nil)
	bystander := w.mustTry(t, other, c.name())
	store, m := c.process(t, nil, nil)
	var g *distlock.TryGuard
	if op == fault.Ping || op == fault.Release {
		g = w.mustTry(t, m, name)
	}
	node, app := c.primary(t), "process-of-"+t.Name()
	if op == fault.Ping {
		app = "" // matches the heartbeats' client too
	}
	command := commandOf(op)
	back := make(chan func(), 1)
	strikeAt(store, op, func() {
		c.block(t, node, command, app)
		go func() { c.entered(t, node); back <- how(t, node) }() // ends after the removal; awaited below
	})
	switch op {
	case fault.Acquire:
		taken, err := w.try(t, m, name)
		(<-back)()
		if err == nil {
			w.wantGuard(t, m, taken, nil)
			return
		}
		wantNoGuard(t, taken, err)
		assert.NoErr(t, w.wait(t, m, name).Release())
	case fault.Ping:
		before := m.Stats()
		(<-back)()
		eventually(t, time.Minute, "pings succeed again", func() bool {
			return m.Stats().Pings > before.Pings+2
		})
		assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context())))
	case fault.Release:
		err := g.Release()
		(<-back)()
		var failed *distlock.ReleaseError
		if err != nil && !errors.As(err, &failed) {
			t.Error(err)
		}
		w.wantFreed(t, name)
	}
	assert.NoErr(t, errors.Join(bystander.Err(), bystander.Verify(t.Context()), bystander.Release()),
		"a lock of another process")
}

// block makes a member delay the next command with the given name by one second. If app is not
// empty, only a command of that application is delayed.
func (c *cluster) block(t *testing.T, node int, command, app string) {
	data := bson.D{field("failCommands", bson.A{command}), field("blockConnection", true),
		field("blockTimeMS", 1000)}
	if app != "" {
		data = append(data, field("appName", app))
	}
	c.admin(t, c.at(t, node), bson.D{field("configureFailPoint", "failCommand"),
		field("mode", bson.D{field("times", 1)}), field("data", data)})
}

// entered waits until a command reaches the fail point.
func (c *cluster) entered(t *testing.T, node int) {
	err := c.at(t, node).Database("admin").RunCommand(t.Context(), bson.D{
		field("waitForFailPoint", "failCommand"), field("timesEntered", int64(1)),
		field("maxTimeMS", 20_000)}).Err()
	assert.NoErr(t, err, "the command did not reach the fail point")
}

// rolledBack kills a primary before it replicates an acquisition, so that the acquisition is rolled
// back. Another process acquires the lock without a takeover.
func (c *cluster) rolledBack(t *testing.T) {
	c.whole(t)
	w, name := c.w, c.name()
	store, m := c.process(t, nil, func(cfg *distlock.Config) { cfg.CommandTimeout = 2 * time.Second })
	_, rival := c.process(t, nil, nil)
	old := c.primary(t)
	local := c.at(t, old).Database(w.db.Name()).Collection(catalog.LocksCollection,
		options.Collection().SetReadConcern(readconcern.Local()))
	done := make(chan struct{})
	strikeAt(store, fault.Acquire, func() {
		c.others(t, old, c.set.Pause)
		go func() { // waited for below
			defer close(done)
			eventually(t, 20*time.Second, "the primary has applied it", func() bool {
				return local.FindOne(t.Context(), byID(name)).Err() == nil
			})
			c.set.Kill(old)
			c.others(t, old, c.set.Continue)
		}()
	})
	g, err := w.try(t, m, name)
	<-done
	wantNoGuard(t, g, err)
	next := w.wait(t, rival, name)
	assert.Equal(t, next.TakeoverEvidence(), "", "taken over: %s, want %s")
	w.untouched(t, name, func() {
		assert.Must(t, c.set.Restart(t.Context(), old))
		c.whole(t)
	})
	assert.NoErr(t, errors.Join(next.Err(), next.Verify(t.Context())))
}

func (c *cluster) others(t *testing.T, but int, do func(int) error) {
	for node := range 3 {
		if node == but {
			continue
		}
		assert.NoErr(t, do(node))
	}
}

// hasty sets the times of a contender that polls often and takes over early.
func hasty(cfg *distlock.Config) {
	cfg.Takeover, cfg.CommandTimeout = awayTakeover, time.Second
	cfg.MaxWatchGap, cfg.Poll, cfg.PollMax = time.Minute, 20*time.Millisecond, 20*time.Millisecond
}

// awayTakeover is a takeover time that passes while the primary is frozen.
const awayTakeover = 5 * time.Second
