package integration_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
)

// ofHistory are the commands on the collection of the history.
func ofHistory(sent *counter) []string {
	var commands []string
	for command, n := range sent.all() {
		if strings.HasSuffix(command, " "+catalog.HistoryCollection) {
			for range n {
				commands = append(commands, strings.TrimSuffix(command, " "+catalog.HistoryCollection))
			}
		}
	}
	slices.Sort(commands)
	return commands
}

// past is the history of a world, which is closed with the test.
func (w *world) past(t testing.TB, cfg distlock.Config) *history.Log {
	t.Helper()
	past := assert.Value(history.New(t.Context(), cfg, history.Options{}))(t)
	t.Cleanup(func() { _ = past.Close(context.Background()) })
	return past
}

// Locks that are held for a moment cost the server nothing but their own commands, over several
// pings. What is held for longer costs one batch, however much it is: the first one makes the
// indexes and looks for too many, the next is one insert. Another process reads it.
func TestHistory_Commands(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		var sent counter
		client := w.client(t, &sent)
		m := w.start(t, func(cfg *distlock.Config) {
			cfg.Client, cfg.PingClient = client, client
			cfg.Observer = w.past(t, *cfg)
		})
		other := w.past(t, w.config())
		pings := func(n int64) {
			t.Helper()
			before := m.Stats().Pings
			eventually(t, time.Minute, "some pings", func() bool { return m.Stats().Pings >= before+n })
		}
		for range 20 {
			g := w.mustTry(t, m, w.name("short"))
			held := time.Now()
			assert.Must(t, g.Release())
			if time.Since(held) > 900*time.Millisecond {
				t.Skip("this machine is too busy to hold a lock for less than a second")
			}
		}
		pings(2)
		if commands := ofHistory(&sent); len(commands) > 0 {
			t.Errorf("short locks cost %q", commands)
		}

		read := func(want ...string) {
			t.Helper()
			var kinds []string
			about := history.Query{Name: w.name("long"), Since: time.Hour}
			eventually(t, time.Minute, "the history", func() bool {
				kinds = nil
				for e, err := range other.Read(t.Context(), about) {
					assert.Must(t, err)
					kinds = append(kinds, e.Kind)
				}
				return len(kinds) >= len(want)
			})
			assert.Slices(t, kinds, want, "history %q, want %q")
		}
		long := w.mustTry(t, m, w.name("long"))
		read("acquired")
		first := []string{"count", "createIndexes", "createIndexes", "find", "insert"}
		eventually(t, time.Minute, "the end of the first batch", func() bool {
			return len(ofHistory(&sent)) >= len(first)
		})
		pings(1)
		assert.Slices(t, ofHistory(&sent), first, "the first batch is %q, want %v")
		sent.reset()
		_ = long.Release()
		read("released", "acquired")
		pings(1)
		assert.Slices(t, ofHistory(&sent), []string{"insert"}, "the second batch is %q, want %v")
	})
}

// A MongoDB deletes what is too old by itself.
func TestHistory_TTL_OnAMongoDB(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		db := w.d.app.Database(w.db.Name() + "_ttl") // the index of others is for thirty days
		t.Cleanup(func() { assert.NoErr(t, db.Drop(context.WithoutCancel(t.Context()))) })
		c := w.d.store(t, db.Name()).Catalog
		assert.Value(c.PrepareHistory(t.Context(), time.Hour))(t)
		now := time.Now().Truncate(time.Millisecond).UTC()
		err := c.AppendHistory(t.Context(), []catalog.HistoryEntry{
			{ID: bson.NewObjectID(), At: now.Add(-2 * time.Hour), Kind: "lost"},
			{ID: bson.NewObjectID(), At: now, Kind: "broken"},
		})
		assert.Must(t, err)
		often := bson.D{field("setParameter", 1), field("ttlMonitorSleepSecs", 1)} // else once a minute
		assert.Must(t, w.d.app.Database("admin").RunCommand(t.Context(), often).Err())
		eventually(t, 4*time.Minute, "the old one is deleted", func() bool {
			var kinds []string
			for e, err := range c.ReadHistory(t.Context(), catalog.HistoryQuery{}) {
				assert.Must(t, err)
				kinds = append(kinds, e.Kind)
			}
			return slices.Equal(kinds, []string{"broken"})
		})
	})
}
