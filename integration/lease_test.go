package integration_test

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// A job hangs while its process pings on: a waiter has its lock when the lease has stood still for
// its life, and not before; the process keeps its other locks, and its late release touches
// nothing.
func TestLease_HungJob_LosesItsLockWhileItsProcessPings(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		life := paced(2 * time.Second)
		a, b := w.start(t, nil), w.start(t, nil)
		name := w.name("report")
		other := w.mustTry(t, a, w.name("other"))
		hangs, err := w.try(t, a, name, distlock.Lease(life))
		if err != nil {
			t.Fatal(err)
		}
		if err := hangs.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		renewed := time.Now() // later than the send
		next := w.wait(t, b, name)
		// Ours counts from before the renewal was sent; the contender from when it saw it.
		if took := time.Since(renewed); took < life-paced(100*time.Millisecond) {
			t.Errorf("taken %v after the renewal, its life is %v", took, life)
		}
		wantErr(t, hangs.Err(), distlock.ErrLeaseExpired)
		wantErr(t, context.Cause(hangs.Context()), distlock.ErrLockLost)
		wantErr(t, hangs.Renew(t.Context()), distlock.ErrLockLost)
		w.untouched(t, name, func() { wantErr(t, hangs.Release(), distlock.ErrLockLost) })
		if err := other.Err(); err != nil {
			t.Errorf("another lock of its process: %v", err)
		}
		if err := next.Verify(t.Context()); err != nil || next.Fence() <= hangs.Fence() {
			t.Errorf("%v, fence %d after %d", err, next.Fence(), hangs.Fence())
		}
	})
}

// While it is renewed nobody has it, and a renewal is one command, as is an acquisition with its
// first renewal two; three more on the embedded server, which is asked and read before.
func TestRenew_IsOneCommand(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("report")
		var sent counter
		client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
		m := w.start(t, func(cfg *distlock.Config) { cfg.Client = client })
		if err := w.mustTry(t, m, name).Release(); err != nil { // the first fence is raised
			t.Fatal(err)
		}
		renewal := 1
		if m.Stats().Server.Kind == string(catalog.FerretDB) {
			renewal = 3
		}
		sent.reset()
		guard, err := w.try(t, m, name, distlock.Lease(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		wantCommands(t, "TryLock with a lease", &sent, 1+renewal)
		for n := range int64(3) {
			if err := guard.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCommands(t, "Renew", &sent, renewal)
			lease, ok := w.lock(t, name).LeaseOf(guard.Session())
			if !ok || lease.Number != n+2 || lease.Life != time.Minute {
				t.Errorf("the document shows %+v, %v", lease, ok)
			}
		}
		if err := guard.Release(); err != nil {
			t.Fatal(err)
		}
		wantCommands(t, "Release", &sent, 1)
		if l := w.lock(t, name); len(l.Leases) != 0 {
			t.Errorf("a free lock has %+v", l.Leases)
		}
	})
}
