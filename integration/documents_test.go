package integration_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

type dead struct {
	name    string
	process string
}

// plantCondemned plants a lock whose holder is condemned, so that the lock can be taken over at
// once. It plants the lock before the ping, because other processes delete a ping without a lock.
func (w *world) plantCondemned(t testing.TB) dead {
	t.Helper()
	d := dead{name: w.name("balancer"), process: w.name("dead:1:1700000000:x")}
	at := bson.NewDateTimeFromTime(w.now(t).Add(-time.Hour))
	w.plant(t, catalog.LocksCollection, bson.D{
		field("_id", d.name), field("state", int32(1)), field("process", d.process),
		field("who", d.process+":main:1"), field("why", "doing balance round"), field("when", at),
		field("ts", bson.NewObjectID()), field("fence", int64(1)<<40), field("rev", int64(1)),
	})
	w.plant(t, catalog.PingsCollection, bson.D{
		field("_id", d.process), field("ping", at), field("local", at), field("seq", int64(7)),
		field("pingMS", int64(50)), field("takeoverMS", int64(1000)),
		field("condemned", map[string]string{"by": "a contender that died"}),
	})
	return d
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
