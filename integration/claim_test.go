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
	"mongodlm/internal/rows"
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
		if err := w.db.Collection(name).Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client.Database(w.db.Name()).Collection(name, options.Collection().SetWriteConcern(writeconcern.Majority()))
}

// claims opens a queue until the end of the test.
func (w *world) claims(t testing.TB, m *distlock.Manager, coll *mongo.Collection, cfg claim.Config) *claim.Queue[job] {
	t.Helper()
	q, err := claim.New[job](t.Context(), m, coll, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := q.Close(ctx); err != nil {
			t.Errorf("closing the queue: %v", err)
		}
	})
	return q
}

func jobs(n int) []job {
	list := make([]job, n)
	for i := range list {
		list[i] = job{ID: i}
	}
	return list
}

// runs runs a queue; the stop waits for it.
func runs(t testing.TB, q *claim.Queue[job], handle func(context.Context, *claim.Row[job]) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := q.Run(ctx, handle); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

func wantCounts(t testing.TB, q *claim.Queue[job], limit time.Duration, want claim.Counts) {
	t.Helper()
	var got claim.Counts
	eventually(t, limit, fmt.Sprintf("counts are %+v", want), func() bool {
		var err error
		if got, err = q.Counts(t.Context()); err != nil {
			t.Fatal(err)
		}
		return got == want
	})
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
				if err := store.Prepare(t.Context()); err != nil {
					t.Fatal(err)
				}
				return store
			})
		})
	})
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
				client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
				coll := w.rowsOf(t, client)
				workers := 16
				if w.d.name == "embedded" {
					workers = 4 // one write at a time: the heartbeat is behind all of theirs
				}
				m := w.patient(t) // a batch may stand behind others for long
				q := w.claims(t, m, coll, claim.Config{Workers: workers, Batch: c.batch, Poll: time.Hour,
					Tend: time.Hour})
				handled := make(chan int, c.rows)
				stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
					handled <- row.Doc.ID
					return nil
				})
				if err := q.Add(t.Context(), job{ID: -1}); err != nil { // the slot is taken
					t.Fatal(err)
				}
				eventually(t, 3*time.Minute, "the first row is handled", func() bool { return len(handled) == 1 })
				<-handled
				wantCounts(t, q, time.Minute, claim.Counts{Done: 1})
				sent.reset()
				if err := q.Add(t.Context(), jobs(c.rows)...); err != nil {
					t.Fatal(err)
				}
				eventually(t, 3*time.Minute, "all rows are handled", func() bool { return len(handled) == c.rows })
				stop()
				all, n := sent.all(), 0
				for _, command := range []string{"find", "findAndModify", "update"} { // of the claims, and a look or two
					n += all[command+" "+coll.Name()]
				}
				per := float64(n) / float64(c.rows)
				t.Logf("%.3f commands an item: %v", per, all)
				if per > c.most {
					t.Errorf("%.3f commands an item, want at most %v", per, c.most)
				}
				wantCounts(t, q, time.Minute, claim.Counts{Done: int64(c.rows) + 1})
			})
		})
	}
}
