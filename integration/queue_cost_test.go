package integration_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// counted starts a process and counts its commands, except heartbeats.
func (w *world) counted(
	t testing.TB, sent *counter, times func(*distlock.Config),
) *distlock.Manager {
	t.Helper()
	client := w.client(t, sent)
	return w.start(t, func(cfg *distlock.Config) {
		cfg.Client = client
		if times != nil {
			times(cfg)
		}
	})
}

// slow sets times with rare heartbeats and reads, and with even intervals between queries for
// grants.
func slow(cfg *distlock.Config) {
	cfg.Ping, cfg.Takeover, cfg.Margin = 10*time.Second, 10*time.Minute, 0
	cfg.Poll, cfg.PollMax, cfg.CommandTimeout = 500*time.Millisecond, 500*time.Millisecond, time.Minute
}

// On a MongoDB server, queueing and a hand-over cost one command each, for any number of waiters.
// On the embedded server each costs a read and a compare-and-set. The number of queries for grants
// depends on time and is bounded.
func TestCommands_OfHandOver(t *testing.T) {
	forEachInTurn(t, func(t *testing.T, w *world) {
		const waiters = 12
		name := w.name("balancer")
		var sent counter
		a, b := w.counted(t, &sent, slow), w.counted(t, &sent, slow)
		g := w.mustTry(t, a, name)
		warm := w.queue(t, b, name) // opens the change streams
		wantReleased(t, g)
		g = wantTurn(t, warm)
		next := make(chan turn, waiters) // the entries of two processes have no fixed order
		sent.reset()
		for i := range 4 { // two entries per process; later callers wait behind them
			done := w.queue(t, []*distlock.Manager{a, b}[i%2], name)
			go func() { next <- <-done }() // ends with its turn
		}
		entering := sent.all()
		sent.reset()
		for i := 4; i < waiters; i++ {
			m := []*distlock.Manager{a, b}[i%2]
			before := m.Stats().Waiting
			go func() { // ends with its turn
				g, err := m.Lock(name).Lock(t.Context())
				w.keep(g)
				next <- turn{g, err}
			}()
			eventually(t, turnLimit, "it waits", func() bool { return m.Stats().Waiting > before })
		}
		begun := time.Now()
		for range waiters {
			wantReleased(t, g)
			g = wantTurn(t, next)
		}
		leaving, took := sent.all(), time.Since(begun)
		t.Logf("%d hand-overs in %v: entering %v, handing over %v", waiters, took, entering, leaving)
		wantReleased(t, g)
		change := "findAndModify " + catalog.LocksCollection
		if a.Stats().Server.Kind == string(catalog.FerretDB) {
			assert.Equal(t, entering[change], 4, "%d writes to enter %d times")
			return
		}
		assert.Equal(t, entering[change], 4, "%d commands to enter %d times")
		assert.Equal(t, leaving[change], 2*waiters-4, "%d commands to hand over and to enter, want %d")
		looks := 0
		for command, n := range leaving {
			if strings.HasPrefix(command, "aggregate") {
				looks += n
			}
		}
		if most := 2 * (2 + int(took/(400*time.Millisecond))); looks > most {
			t.Errorf("%d looks in %v, at most %d belong there", looks, took, most)
		}
		most := 4
		if a.Stats().Server.Kind == string(catalog.Mongos) { // a mongos reports grants late
			most = 6 * waiters
		}
		if a.Stats().Server.ChangeStreams && leaving["find "+catalog.LocksCollection] > most {
			t.Errorf("it asked although it is told: %v", leaving)
		}
	})
}
