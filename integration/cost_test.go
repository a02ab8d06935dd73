package integration_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// Round trips as promised: an uncontended TryLock is one command and a Release one; a contender
// that meets a live holder sends two on a MongoDB, three through a mongos, where lock and pings are
// read one after the other, and four on the embedded server.
func TestCommands_OfAcquiringAndReleasing(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		var sent counter
		client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
		m := w.start(t, func(cfg *distlock.Config) { cfg.Client = client })
		other := w.start(t, nil)
		if err := w.mustTry(t, m, name).Release(); err != nil { // the first fence is raised
			t.Fatal(err)
		}
		sent.reset()
		guard := w.mustTry(t, m, name)
		wantCommands(t, "TryLock of a free lock", &sent, 1)
		assert.Must(t, guard.Release())
		wantCommands(t, "Release", &sent, 1)

		w.mustTry(t, other, name)
		_, err := w.try(t, m, name) // the first look asks the server what it is
		heldError(t, err)
		sent.reset()
		_, err = w.try(t, m, name)
		heldError(t, err)
		want := map[string]int{string(catalog.Mongos): 3, string(catalog.FerretDB): 4}[m.Stats().Server.Kind]
		want = max(want, 2)
		wantCommands(t, "TryLock of a lock with a live holder", &sent, want)
	})
}

func wantCommands(t testing.TB, what string, sent *counter, want int) {
	t.Helper()
	if sent.total() != want {
		t.Errorf("%s: want %d commands, got %v", what, want, sent)
	}
	sent.reset()
}

// However many locks a process holds, it sends one write per interval. TestManager_10000Locks shows
// it of the process; here a server is asked, whose commands do not grow with the collection.
func TestHeartbeat_ThousandLocks_OnePingPerInterval(t *testing.T) {
	inTurn(t, large, func(t *testing.T, w *world) {
		var sent counter
		m, guards := w.holdMany(t, 1000, &sent)
		wantOnePingPerInterval(t, m, &sent)
		for _, g := range guards {
			assert.Must(t, g.Err())
		}
	})
}

// large are the deployments that have room for many documents: a command of the embedded server
// costs the more the larger the collection is.
var large = named("standalone", "replicaset", "configsvr", "mongos", "sharded")

// wantOnePingPerInterval watches a process that holds locks and does nothing else.
func wantOnePingPerInterval(t testing.TB, m *distlock.Manager, sent *counter) {
	t.Helper()
	const intervals = 4
	begun, before := time.Now(), m.Stats().Pings
	sent.reset()
	eventually(t, 120*time.Second, "some pings", func() bool {
		return m.Stats().Pings >= before+intervals
	})
	counts, pings := sent.all(), int(m.Stats().Pings-before)
	writes, beats := sent.writes(), counts["findAndModify "+catalog.PingsCollection]
	if beats < pings-1 || beats > pings+1 { // one may have been under way at either end
		t.Errorf("%d pings cost %d ping commands: %v", pings, beats, counts)
	}
	if writes > beats+1 {
		t.Errorf("%d writes for %d pings: %v", writes, pings, counts)
	}
	shortest := m.Config().Ping * 9 / 10 // give or take a tenth
	if most := int(time.Since(begun)/shortest) + 1; pings > most {
		t.Errorf("%d pings in %v, at most %d belong there", pings, time.Since(begun), most)
	}
	if reads := sent.total() - sent.writes(); reads > 20*(pings+1) {
		t.Errorf("%d reads for %d pings: %v", reads, pings, counts)
	}
	t.Logf("%d pings: %v", pings, counts)
}
