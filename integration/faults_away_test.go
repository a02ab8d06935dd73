package integration_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// secondaryFrozen checks that a process pings and acquires locks while one secondary is frozen.
func (c *cluster) secondaryFrozen(t *testing.T) {
	c.whole(t)
	frozen := (c.primary(t) + 1) % 3
	_, m := c.process(t, nil, nil)
	assert.Must(t, c.set.Pause(frozen))
	defer func() { assert.NoErr(t, c.set.Continue(frozen)) }()
	pings, name := m.Stats().Pings, c.name()
	c.w.wantGuard(t, m, c.w.mustTry(t, m, name), nil)
	eventually(t, 30*time.Second, "pings", func() bool { return m.Stats().Pings > pings+2 })
}

// oldPrimary checks that an old ping on a former primary causes no takeover. The primary is frozen
// until another primary is elected and the takeover time has passed. Then the former primary
// continues. For a short time it returns the old ping to a contender that is connected only to it.
func (c *cluster) oldPrimary(t *testing.T) {
	c.whole(t)
	w, name, old := c.w, c.name(), c.primary(t)
	_, m := c.process(t, nil, func(cfg *distlock.Config) { cfg.Takeover = awayTakeover })
	store, contender := c.process(t, c.at(t, old), hasty)
	g := w.mustTry(t, m, name)
	var answered atomic.Int64
	store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == fault.Acquire { // a contender tries a write before it reads
			return catalog.ErrNotFree
		}
		err := apply()
		if call.Op == fault.Look && err == nil {
			answered.Add(1)
		}
		return err
	})
	_, err := w.try(t, contender, name)
	heldError(t, err)
	assert.Must(t, c.set.Pause(old))
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() { // ends with ctx
		defer close(asked)
		for ctx.Err() == nil { // keeps a read in progress
			if other, err := contender.Lock(name).TryLock(ctx); err == nil {
				t.Errorf("taken over: %s; the error of the holder is %v", other.TakeoverEvidence(), g.Err())
				w.keep(other)
				return
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	frozen := time.Now()
	eventually(t, time.Minute, "another primary is elected, and the ping is old enough", func() bool {
		return time.Since(frozen) > awayTakeover+time.Second && c.anotherPrimary(t, old)
	})
	before := store.Count(fault.Condemn)
	answered.Store(0)
	assert.Must(t, c.set.Continue(old))
	eventually(t, 20*time.Second, "the member answers", func() bool { return answered.Load() > 20 })
	cancel()
	<-asked
	t.Logf("%d tries to condemn the holder by its old ping", store.Count(fault.Condemn)-before)
	pings := m.Stats().Pings
	eventually(t, 30*time.Second, "pings", func() bool { return m.Stats().Pings > pings+1 })
	if l := w.lock(t, name); !l.Held || l.TS != g.Session() {
		t.Errorf("the document shows %+v", l)
	}
	if err := g.Err(); err != nil { // happens if elections take long
		wantErr(t, err, distlock.ErrLockLost)
		t.Logf("the holder lost its lock, and no other process acquired it: %v", err)
	}
}

// anotherPrimary reports whether a member other than old is primary.
func (c *cluster) anotherPrimary(t *testing.T, old int) bool {
	found := false
	c.others(t, old, func(node int) error {
		admin := c.at(t, node).Database("admin")
		raw, err := admin.RunCommand(t.Context(), bson.D{field("isMaster", 1)}).Raw()
		found = found || err == nil && raw.Lookup("ismaster").Boolean()
		return nil // a member may close connections during an election
	})
	return found
}

// allRestarted checks that a holder keeps its lock if all members are killed and restarted within
// its takeover time.
func (c *cluster) allRestarted(t *testing.T) {
	c.whole(t)
	w, name := c.w, c.name()
	_, m := c.process(t, nil, func(cfg *distlock.Config) { cfg.Takeover = 3 * time.Minute })
	g := w.mustTry(t, m, name)
	for node := range 3 {
		c.set.Kill(node)
	}
	for node := range 3 {
		assert.Must(t, c.set.Restart(t.Context(), node))
	}
	pings := m.Stats().Pings
	eventually(t, time.Minute, "pings succeed again", func() bool { return m.Stats().Pings > pings+1 })
	assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context())))
	_, err := w.try(t, w.start(t, nil), name)
	if h := heldError(t, err); h.Process != m.Process() {
		t.Errorf("held by %s", h.Process)
	}
}
