package integration_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

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
		guard := assert.Value(w.try(t, m, name, distlock.Lease(time.Minute)))(t)
		wantCommands(t, "TryLock with a lease", &sent, 1+renewal)
		for n := range int64(3) {
			assert.Must(t, guard.Renew(t.Context()))
			wantCommands(t, "Renew", &sent, renewal)
			lease, ok := w.lock(t, name).LeaseOf(guard.Session())
			if !ok || lease.Number != n+2 || lease.Life != time.Minute {
				t.Errorf("the document shows %+v, %v", lease, ok)
			}
		}
		assert.Must(t, guard.Release())
		wantCommands(t, "Release", &sent, 1)
		if l := w.lock(t, name); len(l.Leases) != 0 {
			t.Errorf("a free lock has %+v", l.Leases)
		}
	})
}
