package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/rowstest"
)

// job is a row of the tests.
type job struct {
	ID int `bson:"_id"`
	N  int
}

// rowsOf is a collection of rows, of this test alone, over a client. What a test itself writes by
// it waits for the majority, whose reads the queue uses.
func (w *world) rowsOf(t testing.TB, client *mongo.Client) *mongo.Collection {
	t.Helper()
	name := "rows_" + bson.NewObjectID().Hex()
	t.Cleanup(func() {
		assert.NoErr(t, w.db.Collection(name).Drop(context.WithoutCancel(t.Context())))
	})
	majority := options.Collection().SetWriteConcern(writeconcern.Majority())
	return client.Database(w.db.Name()).Collection(name, majority)
}

// claims opens a queue until the end of the test.
func (w *world) claims(t testing.TB, m *distlock.Manager, coll *mongo.Collection,
	cfg claim.Config) *claim.Queue[job] {
	t.Helper()
	q := assert.Value(claim.New[job](t.Context(), m, coll, cfg))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), standstill)
		defer cancel()
		assert.NoErr(t, q.Close(ctx), "closing the queue")
	})
	return q
}

// inState is the claim of a row, of which nothing else is known.
func inState(state string) bson.E { return field("claim", bson.D{field("state", state)}) }

func jobs(n int) []job {
	list := make([]job, n)
	for i := range list {
		list[i] = job{ID: i}
	}
	return list
}

// runs runs a queue; the stop waits for it.
func runs(
	t testing.TB, q *claim.Queue[job], handle func(context.Context, *claim.Row[job]) error,
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoErr(t, q.Run(ctx, handle), "Run") })
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

// wantCounts waits for counts, as long as they change within the limit.
func wantCounts(t testing.TB, q *claim.Queue[job], limit time.Duration, want claim.Counts) {
	t.Helper()
	counts := func() claim.Counts { return assert.Value(q.Counts(t.Context()))(t) }
	for last := counts(); last != want; last = counts() {
		what := fmt.Sprintf("counts are %+v, not %+v", want, last)
		eventually(t, limit, what, func() bool { return counts() != last })
	}
}

// The store over a server does as the one in memory.
func TestClaim_Rows_Conform(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		rowstest.Run(t, func(t *testing.T) rows.Store {
			return rows.NewMongo(w.rowsOf(t, w.d.app), "claim", nil, bson.D{field("_id", 1)})
		})
		t.Run("NoOrder", func(t *testing.T) {
			rowstest.Run(t, func(t *testing.T) rows.Store {
				store := rows.NewMongo(w.rowsOf(t, w.d.app), "claim", nil, nil)
				assert.Must(t, store.Prepare(t.Context()))
				return store
			})
		})
		rowstest.RunDue(t, func(t *testing.T, field string) rows.Store {
			store := rows.NewMongo(w.rowsOf(t, w.d.app), "claim", nil, nil).Due(field)
			assert.Must(t, store.Prepare(t.Context()))
			return store
		})
		if w.d.name == "embedded" || w.d.name == "sharded" { // TestChains_NewSaysSo
			return
		}
		rowstest.RunChains(t, func(t *testing.T, key string, letGo bool) rows.Store {
			store := rows.NewMongo(w.rowsOf(t, w.d.app), "claim", nil, nil).Keyed(key, letGo)
			assert.Must(t, store.Prepare(t.Context()))
			return store
		})
	})
}

// lingering is a clock by which a completion waits long enough for others on any machine.
type lingering struct{ clock.Clock }

func (c lingering) NewTimer(d time.Duration) clock.Timer {
	if d < 10*time.Millisecond {
		d *= 1000
	}
	return c.Clock.NewTimer(d)
}

// What an item costs: two commands alone, a tenth of one in a batch of a hundred.
func TestClaim_CommandsAnItem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		batch, rows int
		most        float64
	}{{1, 100, 2.1}, {100, 300, 0.1}} {
		t.Run(fmt.Sprintf("batch %d", c.batch), func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, w *world) {
				var sent counter
				coll := w.rowsOf(t, w.client(t, &sent))
				n, workers := c.rows, 16
				if w.d.name == "embedded" { // one write at a time: the heartbeat is behind all of theirs
					n, workers = n/2, 4
				}
				m := w.start(t, func(cfg *distlock.Config) {
					cfg.Takeover, cfg.CommandTimeout = 15*time.Minute, standstill/4
				})
				slow := timed{t, clock.With(t.Context(), lingering{clock.System()})}
				q := w.claims(slow, m, coll, claim.Config{Workers: workers, Batch: c.batch,
					Poll: 100 * time.Hour, Tend: 100 * time.Hour})
				handled := make(chan int, n)
				stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
					handled <- row.Doc.ID
					return nil
				})
				if err := q.Add(t.Context(), job{ID: -1}); err != nil { // the slot is taken
					t.Fatal(err)
				}
				progress(t, "the first row is handled", 1, func() int { return len(handled) })
				<-handled
				wantCounts(t, q, standstill, claim.Counts{Done: 1})
				sent.reset()
				assert.Must(t, q.Add(t.Context(), jobs(n)...))
				progress(t, "rows are handled", n, func() int { return len(handled) })
				stop()
				all, commands := sent.all(), 0
				for _, command := range []string{"find", "findAndModify", "update"} {
					commands += all[command+" "+coll.Name()]
				}
				// Who rescues rows asks for slots, and then for two kinds of rows.
				commands -= 2 * all["aggregate "+coll.Name()]
				per := float64(commands) / float64(n)
				t.Logf("%.3f commands an item: %v", per, all)
				if per > c.most {
					t.Errorf("%.3f commands an item, want at most %v", per, c.most)
				}
				wantCounts(t, q, standstill, claim.Counts{Done: int64(n) + 1})
			})
		})
	}
}
