package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/rowstest"
)

type job struct {
	ID int `bson:"_id"`
	N  int
}

// rowsOf returns a new collection of rows. Its writes wait for a majority, because a queue reads
// with read concern majority.
func (w *world) rowsOf(t testing.TB, client *mongo.Client) *mongo.Collection {
	t.Helper()
	name := "rows_" + bson.NewObjectID().Hex()
	t.Cleanup(func() {
		assert.NoErr(t, w.db.Collection(name).Drop(context.WithoutCancel(t.Context())))
	})
	majority := options.Collection().SetWriteConcern(writeconcern.Majority())
	return client.Database(w.db.Name()).Collection(name, majority)
}

// claims returns a queue and closes it at the end of the test.
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

func inState(state string) bson.E { return field("claim", bson.D{field("state", state)}) }

func jobs(n int) []job {
	list := make([]job, n)
	for i := range list {
		list[i] = job{ID: i}
	}
	return list
}

// runs calls Run in a new goroutine. The returned function ends Run and waits until it returns.
func runs(
	t testing.TB, q *claim.Queue[job], handle func(context.Context, *claim.Row[job]) error,
) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoErr(t, q.Run(ctx, handle), "Run") })
	return sync.OnceFunc(func() { cancel(); running.Wait() })
}

// wantCounts waits until the queue has the given counts. If the counts do not change for the
// duration limit, the test fails.
func wantCounts(t testing.TB, q *claim.Queue[job], limit time.Duration, want claim.Counts) {
	t.Helper()
	counts := func() claim.Counts { return assert.Value(q.Counts(t.Context()))(t) }
	for last := counts(); last != want; last = counts() {
		what := fmt.Sprintf("counts are %+v, not %+v", want, last)
		eventually(t, limit, what, func() bool { return counts() != last })
	}
}

// The store of claims passes its conformance suite on all deployments.
func TestClaim_Rows_Conform(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		open := func(t *testing.T, o rows.Options) rows.Store {
			o.Field = "claim"
			store := rows.NewMongo(w.rowsOf(t, w.d.app), o)
			assert.Must(t, store.Prepare(t.Context()))
			return store
		}
		rowstest.Run(t, open)
		rowstest.RunDue(t, open)
		if w.d.name != "embedded" && w.d.name != "sharded" { // the others have no chains
			rowstest.RunChains(t, open)
		}
	})
}

// Each returned claim contains one invalid value, so no process can end it.
func hostileClaims() (list []bson.D) {
	sound := bson.D{field("state", "claimed"), field("slot", "claim:s"), field("slotFence", int64(1)),
		field("session", bson.NewObjectID()), field("batch", bson.NewObjectID()),
		field("fence", int64(1)), field("attempts", int64(1)), field("locks", "distlock")}
	for i, part := range sound {
		values := []any{bson.A{part.Value}} // the embedded server has no Decimal128
		switch part.Key {
		case "slot":
			values = append(values, "", "nope")
		case "slotFence":
			values = append(values, 1e300, math.MaxInt64)
		case "session", "batch":
			values = append(values, nil)
		case "fence", "attempts":
			values = append(values, -5, "x", nil)
		}
		for _, value := range values {
			mark := slices.Clone(sound)
			mark[i].Value = value
			list = append(list, mark)
		}
	}
	return list
}

// If a row has an invalid claim, the queue counts and lists the row as odd and does not change it.
// All other rows are done.
func TestClaim_OddRows_AreLeftAloneAndNamed(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		var odd []any
		for i, value := range []any{nil, "mine", 7, bson.A{}, bson.A{bson.D{field("state", "ready")}},
			bson.D{field("fence", "x")}, bson.D{field("attempts", nil)}, bson.D{field("state", "clamed")},
			bson.D{field("state", 5)}, bson.D{field("state", "claimed")},
			bson.D{field("state", "claimed"), field("slot", 5), field("session", bson.NewObjectID())},
			bson.D{field("state", "retrying")}, bson.D{field("state", bson.A{"retrying"})},
			bson.D{field("state", bson.A{"retrying", "other"})}, bson.D{field("state", bson.A{"ready"})}} {
			odd = append(odd, bson.D{field("_id", -100+i), field("claim", value)})
		}
		hostile := hostileClaims()
		for i, value := range hostile {
			odd = append(odd, bson.D{field("_id", -200+i), field("claim", value)})
		}
		odd = append(odd, bson.D{field("_id", -50), field("at", "soon")},
			bson.D{field("_id", -49), field("at", 5)})
		insert(t, coll, odd...)
		q := w.claims(t, w.start(t, nil), coll, claim.Config{Due: "at"})
		for id := range 15 {
			insert(t, coll, bson.D{field("_id", id), field("at", time.Now().Add(-time.Minute))})
		}
		insert(t, coll, bson.D{field("_id", 15), field("at", nil)})
		stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
			if row.Doc.ID < 0 {
				t.Errorf("row %d was claimed", row.Doc.ID)
			}
			return nil
		})
		wantCounts(t, q, standstill, claim.Counts{Done: 15, Later: 1, Odd: int64(len(odd))})
		stop()
		problems := assert.Value(q.Admin().Odd(t.Context()))(t)
		slices.Sort(problems)
		if len(problems) < 17 || len(slices.Compact(slices.Clone(problems))) < len(problems) {
			t.Errorf("the odd rows are %q", problems)
		}
		for _, doc := range odd {
			want, _ := bson.Marshal(doc)
			got, err := coll.FindOne(t.Context(), bson.D{doc.(bson.D)[0]}).Raw()
			if err != nil || string(got) != string(want) {
				t.Errorf("row is %v, %v, want %v", got, err, bson.Raw(want))
			}
		}
		repaired := assert.Value(q.Admin().Repair(t.Context()))(t)
		assert.Equal(t, repaired, 2+len(hostile), "%d repaired, want %d")
	})
}

// DoneWith commits the writes of its function and marks the row as done, or does neither. If
// DoneWith returns an error, the attempt has failed, even if the handler returns nil.
func TestClaim_DoneWith_BothOrNeither(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		q := w.claims(t, w.start(t, nil), coll, claim.Config{MaxAttempts: 1,
			Filter: bson.D{field("n", bson.D{field("$gt", 0)})}})
		for id := range 5 {
			assert.Must(t, q.Add(t.Context(), job{ID: id, N: 1}))
		}
		none := make(chan error, 10)
		broken := errors.New("broken")
		stop := runs(t, q, func(ctx context.Context, row *claim.Row[job]) error {
			id := row.Doc.ID
			err := row.DoneWith(ctx, func(ctx context.Context) error {
				_, err := q.Insert(ctx, fmt.Sprint("next of ", id%2), job{ID: 10 + id})
				if id == 1 {
					return errors.Join(err, broken)
				}
				return err
			})
			if errors.Is(err, claim.ErrNoTransactions) {
				none <- err
				return nil // counts as a failure
			}
			if id == 1 {
				wantErr(t, err, broken)
				return nil // counts as a failure
			}
			assert.NoErr(t, err)
			wantErr(t, row.DoneWith(ctx, func(context.Context) error { return nil }), claim.ErrFinished)
			return nil
		})
		eventually(t, standstill, "all rows are over", func() bool {
			c := assert.Value(q.Counts(t.Context()))(t)
			return c.Done+c.Dead == 5
		})
		stop()
		c := assert.Value(q.Counts(t.Context()))(t)
		if len(none) > 0 {
			assert.Equal(t, c, claim.Counts{Dead: 5}, "%+v, want %+v")
			return
		}
		assert.Equal(t, c, claim.Counts{Done: 4, Dead: 1}, "%+v, want %+v")
		assert.Equal(t, w.count(t, coll, bson.D{field("n", 0)}), 2, "%d rows were added, want %d")
	})
}

// If a validator of the collection refuses the writes that begin or end the claims of some rows,
// all other rows are still done.
func TestClaim_ValidatorRefusesRows_OthersAreDone(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		const n, bad = 30, 5
		coll := w.rowsOf(t, w.d.app)
		q := w.claims(t, w.start(t, nil), coll, claim.Config{Workers: 2})
		assert.Must(t, q.Add(t.Context(), jobs(n)...))
		refuse := func(below int) error {
			return w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
				field("validator", byID(bson.D{field("$gte", below), field("$ne", 10)}))}).Err()
		}
		assert.Must(t, w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
			field("validator", byID(bson.D{field("$gte", bad)}))}).Err())
		stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
			if row.Doc.ID == 10 {
				return refuse(bad)
			}
			return nil
		})
		wantCounts(t, q, standstill, claim.Counts{Ready: bad, Claimed: 1, Done: n - bad - 1,
			Refused: bad + 1})
		stop()
	})
}

// If the text of a failure does not fit into the row, the claim of the row still ends.
func TestClaim_NoRoomForTheFailure_ClaimEnds(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		q := w.claims(t, w.start(t, nil), coll, claim.Config{MaxAttempts: 1})
		filler := make([]byte, 16<<20-1000)
		insert(t, coll, bson.D{field("_id", 1), field("filler", filler)})
		why := errors.New(strings.Repeat("because ", 300))
		stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return why })
		wantCounts(t, q, standstill, claim.Counts{Dead: 1})
		stop()
	})
}

// The queries of a claim read no done rows and do not sort, even if the collection has another
// index on the same field.
func TestClaim_Order_HasItsIndex(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		var sent tape
		coll := w.rowsOf(t, w.client(t, &sent))
		_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{field("at", 1)}})
		assert.Must(t, err)
		store := rows.NewMongo(coll, rows.Options{Field: "claim", Due: "at"})
		assert.Must(t, store.Prepare(t.Context()))
		at := assert.Value(store.Now(t.Context()))(t)
		var docs []any
		for i := range 10_000 {
			docs = append(docs, bson.D{field("_id", i), field("at", at), inState("done")})
		}
		insert(t, coll, append(docs, bson.D{field("_id", -1), field("at", at)})...)
		sent.take()
		ask := rows.Ask{Due: at}
		assert.Value(store.First(t.Context(), ask))(t)
		c := rows.Claim{Slot: rows.SlotPrefix + "s", Session: bson.NewObjectID(), Batch: bson.NewObjectID()}
		if row, err := store.Claim(t.Context(), c, ask); err != nil || row == nil {
			t.Fatal(row, err)
		}
		assert.Value(store.Later(t.Context(), at, 10))(t)
		assert.Value(store.Claimed(t.Context(), rows.Slot{Name: rows.SlotPrefix + "s"}))(t)
		wantIndexed(t, coll.Database(), sent.take(), 10, 10)
	})
}

// Admin.Odd names an odd row behind more than a thousand rows that are due later. Admin.Purge
// removes all rows although another Purge runs.
func TestClaim_ManyRows_AdminFindsAll(t *testing.T) {
	t.Parallel()
	forThese(t, named("embedded", "replicaset"), func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		const many = 2001
		var docs []any
		for i := range many {
			docs = append(docs, bson.D{field("_id", i), field("at", time.Now().Add(24*time.Hour))},
				bson.D{field("_id", -i-1), inState("done")})
		}
		insert(t, coll, append(docs, bson.D{field("_id", many), field("claim", "odd")})...)
		a := assert.Value(claim.NewAdmin(coll, claim.Config{Due: "at"}))(t)
		odd := assert.Value(a.Odd(t.Context()))(t)
		assert.Equal(t, len(odd), 1, "%d rows are named, want %d")
		var purging sync.WaitGroup
		for range 2 {
			purging.Go(func() {
				assert.Value(a.Purge(t.Context(), claim.StateDone, 0))(t)
				left := assert.Value(a.Count(t.Context()))(t)
				assert.Equal(t, left, claim.Counts{Later: many, Odd: 1}, "%+v are left, want %+v")
			})
		}
		purging.Wait()
	})
}
