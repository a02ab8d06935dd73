package integration_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/claim"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/rowstest"
)

// timed is a test by another clock.
type timed struct {
	testing.TB
	ctx context.Context
}

func (t timed) Context() context.Context { return t.ctx }

// It tries to break: rows are given before the server's clock has passed their time, or are lost,
// where the clocks of the processes are an hour apart. A thousand rows are due over ten seconds.
func TestClaim_Due_ClocksAnHourApart(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		n, span := 1000, 10*time.Second
		if w.d.name == "embedded" {
			n, span = 40, 4*time.Second // every command reads the collection
		}
		coll := w.rowsOf(t, w.d.app)
		first := w.now(t).Add(3 * time.Second)
		docs := make([]any, n)
		due := make([]time.Time, n)
		for i := range docs {
			due[i] = first.Add(time.Duration(i*7%n) * span / time.Duration(n))
			docs[i] = bson.D{field("_id", i), field("locked", false), field("execute_at", due[i])}
		}
		assert.Value(coll.InsertMany(t.Context(), docs))(t)
		var mu sync.Mutex // guards given and late
		given, late := map[int]int{}, []time.Duration{}
		for _, wrong := range []time.Duration{-time.Hour, 0, time.Hour} {
			t := timed{t, clock.With(t.Context(), locktest.WrongClock(wrong))}
			q := w.claims(t, w.patient(t), coll, claim.Config{Due: "execute_at",
				Filter: bson.D{field("locked", false)}, Workers: 4, Batch: 10})
			t.Cleanup(runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
				now := w.now(t)
				mu.Lock()
				defer mu.Unlock()
				given[row.Doc.ID]++
				late = append(late, now.Sub(due[row.Doc.ID]))
				return nil
			}))
		}
		progress(t, "rows are handled", n, func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(given)
		})
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(late)
		t.Logf("late: median %v, most %v", late[len(late)/2], late[len(late)-1])
		if len(late) != n || late[0] < 0 {
			t.Errorf("%d of %d rows were given, the first %v before its time", len(late), n, -late[0])
		}
	})
}

// The query of rows that are due reads them by the index, and sorts nothing.
func TestClaim_Due_ByIndex(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		if w.d.name == "embedded" {
			t.Skip("it reads whole collections")
		}
		var sent tape
		coll := w.rowsOf(t, w.client(t, &sent))
		now := w.now(t)
		var docs []any
		for i := range 2000 {
			docs = append(docs, bson.D{field("_id", i), field("n", i), field("locked", i%3 == 0),
				field("execute_at", now.Add(time.Duration(i-1000)*time.Minute))})
		}
		assert.Value(coll.InsertMany(t.Context(), docs))(t)
		q := w.claims(t, w.patient(t), coll, claim.Config{Due: "execute_at", Sort: bson.D{field("n", -1)},
			Filter: bson.D{field("locked", false)}, InFlight: 100})
		sent.take()
		for _, n := range []int{1, 5, 50, 1} { // of a thousand that are due
			assert.Value(q.Claim(t.Context(), n))(t)
		}
		assert.Value(rows.NewMongo(coll, "claim", bson.D{field("locked", false)}, bson.D{field("n", -1)}).
			Due("execute_at").Later(t.Context(), now, 10))(t)
		for _, command := range sent.take() {
			if command[0].Value.(bson.RawValue).StringValue() != coll.Name() ||
				command[0].Key != "find" && command[0].Key != "findAndModify" ||
				bsonText(command) == "" {
				continue
			}
			plan := explained(t, coll.Database(), command)
			won, _, _ := strings.Cut(plan.String(), `"rejectedPlans"`)
			read, _ := plan.Lookup("executionStats", "totalDocsExamined").AsInt64OK()
			if strings.Contains(won, "COLLSCAN") || strings.Contains(won, `"SORT"`) || read > 200 {
				t.Errorf("%v reads %d documents: %s", command, read, won)
			}
		}
	})
}

// bsonText is a question for rows as text, empty for one that names them.
func bsonText(command bson.D) string {
	raw, err := bson.Marshal(command)
	if _, named := bson.Raw(raw).Lookup("filter", "_id").DocumentOK(); err != nil || named {
		return ""
	}
	return bson.Raw(raw).String()
}

// The stream tells of a time that was changed, by whatever name, and not of one that was removed.
func TestClaim_Due_StreamTellsOfNewTimes(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		for _, due := range []string{"execute_at", "plan.at"} {
			coll := w.rowsOf(t, w.d.app)
			assert.Value(coll.InsertOne(t.Context(), byID(1)))(t)
			told := rowstest.Listen(t, rows.NewMongo(coll, "claim", nil, nil).Due(due))
			at := time.UnixMilli(1e12)
			outer, inner, _ := strings.Cut(due, ".")
			whole := any(at.Add(time.Hour))
			if inner != "" {
				whole = bson.D{field(inner, whole)}
			}
			change := func(update bson.D) { assert.Value(coll.UpdateOne(t.Context(), byID(1), update))(t) }
			change(set(field(due, at)))
			told.WantDue("set", at, "1")
			change(set(field("n", 1)))
			change(set(field(due, nil)))
			change(bson.D{field("$unset", bson.D{field(due, "")})})
			change(set(field(outer, whole)))
			told.WantDue("set "+outer, at.Add(time.Hour), "1")
			replacement := bson.D{field(outer, whole), field("n", 2)}
			assert.Value(coll.ReplaceOne(t.Context(), byID(1), replacement))(t)
			told.WantDue("replace", at.Add(time.Hour), "1")
			change(set(field("claim.state", "dead")))
			change(set(field("claim.state", "ready")))
			told.Want("dead", "freed", "1")
			told.WantDue("ready", time.Time{}, "1")
			assert.Value(coll.DeleteOne(t.Context(), byID(1)))(t)
			told.Want("delete", "freed", "1")
		}
	})
}
