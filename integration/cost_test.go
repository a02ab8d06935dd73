package integration_test

import (
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// The operations send few commands:
//   - An uncontended TryLock, a Release and a renewal send one command each. A renewal on the
//     embedded server sends two.
//   - A TryLock of a held lock sends two commands to a mongod, three to a mongos, and four to the
//     embedded server.
func TestCommands_OfAcquiringAndReleasing(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		var sent tape
		client := w.client(t, &sent)
		m := w.start(t, func(cfg *distlock.Config) {
			slow(cfg) // prevents a check for silent holders
			cfg.Client = client
		})
		other := w.start(t, slow)
		assert.Must(t, w.mustTry(t, m, name).Release()) // also seeds the fence
		sent.take()
		guard := w.mustTry(t, m, name)
		wantCommands(t, "TryLock of a free lock", &sent, 1)
		assert.Must(t, guard.Release())
		wantCommands(t, "Release", &sent, 1)

		renewal := 1
		if m.Stats().Server.Kind == string(catalog.FerretDB) {
			renewal = 2
		}
		guard = assert.Value(w.try(t, m, name, distlock.Lease(time.Minute)))(t)
		wantCommands(t, "TryLock with a lease", &sent, 1+renewal)
		assert.Must(t, guard.Renew(t.Context()))
		wantCommands(t, "Renew", &sent, renewal)
		assert.Must(t, guard.Release())

		w.mustTry(t, other, name)
		_, err := w.try(t, m, name) // the first read also asks for the server's kind
		heldError(t, err)
		sent.take()
		_, err = w.try(t, m, name)
		heldError(t, err)
		more := map[string]int{string(catalog.Mongos): 1, string(catalog.FerretDB): 2}
		want := 2 + more[m.Stats().Server.Kind]
		wantCommands(t, "TryLock of a lock with a live holder", &sent, want)
	})
}

func wantCommands(t testing.TB, what string, sent *tape, want int) {
	t.Helper()
	if names := sent.names(); len(names) != want {
		t.Errorf("%s: want %d commands, got %q", what, want, names)
	}
}
