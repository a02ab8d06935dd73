package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/claim"
	"mongodlm/internal/test/assert"
)

// It tries to break: documents that were there before a strict validator are refused every change.
// They are set aside, whether they are claimed alone or in batches, and all others are done.
func TestClaim_ValidatorRefusesRows_OthersAreDone(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		for _, cfg := range []claim.Config{
			{Poll: 50 * time.Millisecond}, {Batch: 10, Workers: 2, Sort: bson.D{field("_id", 1)}},
		} {
			const n, bad = 50, 15
			coll := w.rowsOf(t, w.d.app)
			q := w.claims(t, w.patient(t), coll, cfg)
			assert.Must(t, q.Add(t.Context(), jobs(n)...))
			assert.Must(t, w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
				field("validator", byID(bson.D{field("$gte", bad)}))}).Err())
			stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })
			wantCounts(t, q, standstill, claim.Counts{Ready: bad, Done: n - bad, Refused: bad})
			stop()
		}
	})
}

// It tries to break: the validator comes while rows are worked on: their completions are refused,
// and the rest of the batch is done.
func TestClaim_ValidatorRefusesACompletion_OthersAreDone(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		for _, cfg := range []claim.Config{{Workers: 4}, {Batch: 8, Workers: 4}} {
			const n = 40
			coll := w.rowsOf(t, w.d.app)
			q := w.claims(t, w.patient(t), coll, cfg)
			assert.Must(t, q.Add(t.Context(), jobs(n)...))
			stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
				if row.Doc.ID != 3 {
					return nil
				}
				return w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
					field("validator", byID(bson.D{field("$ne", 3)}))}).Err()
			})
			wantCounts(t, q, standstill, claim.Counts{Claimed: 1, Done: n - 1, Refused: 1})
			stop()
		}
	})
}

// It tries to break: more documents than a list can hold keep something else where a claim would
// be, null among it. All others are done.
func TestClaim_FieldIsNoDocument_OthersAreDone(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		for _, batch := range []int{1, 10} {
			coll := w.rowsOf(t, w.d.app)
			var odd []bson.D
			for i := range 150 {
				value := []any{nil, "mine", 7, bson.A{}, bson.A{bson.D{field("state", "ready")}}}[i%5]
				odd = append(odd, bson.D{field("_id", -1000+i), field("claim", value)})
			}
			assert.Value(coll.InsertMany(t.Context(), odd))(t)
			q := w.claims(t, w.patient(t), coll, claim.Config{Batch: batch, Sort: bson.D{field("_id", 1)},
				Poll: 50 * time.Millisecond})
			assert.Must(t, q.Add(t.Context(), jobs(20)...))
			stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })
			eventually(t, standstill, "all others are done", func() bool {
				c, err := q.Counts(t.Context())
				return err == nil && c.Done == 20 && c.Refused == 0
			})
			stop()
		}
	})
}

// It tries to break: a filter that the server does not understand is found out at New.
func TestClaim_RefusedFilter_NewSaysSo(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		assert.Value(coll.InsertOne(t.Context(), job{}))(t) // the embedded server looks at rows first
		_, err := claim.New[job](t.Context(), w.patient(t), coll, claim.Config{
			Filter: bson.D{field("n", bson.D{field("$foo", 1)})}})
		assert.Is(t, err, claim.ErrConfig)
	})
}

// It tries to break: more refused rows than one command looks at stand before those whose pause is
// over. These are tried again, and done.
func TestClaim_ManyRefusedRetries_OthersAreDone(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		const bad, good = 1100, 5
		coll := w.rowsOf(t, w.d.app)
		past, docs := time.Now().Add(-time.Hour), make([]bson.D, bad+good)
		for i := range docs {
			docs[i] = bson.D{field("_id", i), field("claim", bson.D{field("state", "retrying"),
				field("notBefore", past.Add(time.Duration(i)*time.Second))})}
		}
		assert.Value(coll.InsertMany(t.Context(), docs))(t)
		assert.Must(t, w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
			field("validator", byID(bson.D{field("$gte", bad)}))}).Err())
		q := w.claims(t, w.patient(t), coll, claim.Config{Poll: 50 * time.Millisecond})
		stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })
		wantCounts(t, q, standstill, claim.Counts{Retrying: bad, Done: good, Refused: bad})
		stop()
	})
}

// It tries to break: a row that has room for a claim, and none for what its handler's error says,
// stays claimed for ever.
func TestClaim_NoRoomForTheFailure_ClaimEnds(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		q := w.claims(t, w.patient(t), coll, claim.Config{MaxAttempts: 1, Poll: 50 * time.Millisecond})
		filler := make([]byte, 16<<20-1000)
		assert.Value(coll.InsertOne(t.Context(), bson.D{field("_id", 1), field("filler", filler)}))(t)
		why := errors.New(strings.Repeat("because ", 300))
		stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return why })
		wantCounts(t, q, standstill, claim.Counts{Dead: 1})
		stop()
		for row, err := range claim.List(t.Context(), coll, claim.Config{}, claim.StateDead) {
			if err != nil || !strings.HasPrefix(row.LastError, "because because") {
				t.Errorf("%q, %v", row.LastError, err)
			}
		}
	})
}

// It tries to break: one dead row that the server refuses to change keeps those behind the first
// thousand from being tried again.
func TestClaim_RetryAll_OneRefused_OthersAreReady(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset"), func(t *testing.T, w *world) {
		const n = 1100
		coll := w.rowsOf(t, w.d.app)
		var dead []any
		for id := range n {
			dead = append(dead, bson.D{field("_id", id), inState("dead")})
		}
		insert(t, coll, dead...)
		assert.Must(t, w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
			field("validator", byID(bson.D{field("$ne", 0)}))}).Err())
		got, err := claim.RetryAll(t.Context(), coll, claim.Config{})
		if left := (claim.Counts{Ready: n - 1, Dead: 1}); err == nil || got != n-1 ||
			assert.Value(claim.Count(t.Context(), coll, claim.Config{}))(t) != left {
			t.Errorf("%d rows, %v", got, err)
		}
	})
}
