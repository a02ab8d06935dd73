package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/claim"
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
			if err := q.Add(t.Context(), jobs(n)...); err != nil {
				t.Fatal(err)
			}
			if err := w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
				field("validator", bson.D{field("_id", bson.D{field("$gte", bad)})})}).Err(); err != nil {
				t.Fatal(err)
			}
			stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })
			wantCounts(t, q, 3*time.Minute, claim.Counts{Ready: bad, Done: n - bad, Refused: bad})
			stop()
		}
	})
}

// It tries to break: the validator comes while rows are worked on: their completions are refused, and
// the rest of the batch is done.
func TestClaim_ValidatorRefusesACompletion_OthersAreDone(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		for _, cfg := range []claim.Config{{Workers: 4}, {Batch: 8, Workers: 4}} {
			const n = 40
			coll := w.rowsOf(t, w.d.app)
			q := w.claims(t, w.patient(t), coll, cfg)
			if err := q.Add(t.Context(), jobs(n)...); err != nil {
				t.Fatal(err)
			}
			stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
				if row.Doc.ID != 3 {
					return nil
				}
				return w.db.RunCommand(t.Context(), bson.D{field("collMod", coll.Name()),
					field("validator", bson.D{field("_id", bson.D{field("$ne", 3)})})}).Err()
			})
			wantCounts(t, q, 3*time.Minute, claim.Counts{Claimed: 1, Done: n - 1, Refused: 1})
			stop()
		}
	})
}

// It tries to break: more documents than a list can hold keep something else where a claim would be,
// null among it. All others are done.
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
			if _, err := coll.InsertMany(t.Context(), odd); err != nil {
				t.Fatal(err)
			}
			q := w.claims(t, w.patient(t), coll, claim.Config{Batch: batch, Sort: bson.D{field("_id", 1)},
				Poll: 50 * time.Millisecond})
			if err := q.Add(t.Context(), jobs(20)...); err != nil {
				t.Fatal(err)
			}
			stop := runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })
			eventually(t, 3*time.Minute, "all others are done", func() bool {
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
		if _, err := coll.InsertOne(t.Context(), job{}); err != nil { // the embedded server looks at rows first
			t.Fatal(err)
		}
		_, err := claim.New[job](t.Context(), w.patient(t), coll, claim.Config{
			Filter: bson.D{field("n", bson.D{field("$foo", 1)})}})
		if !errors.Is(err, claim.ErrConfig) {
			t.Errorf("error is %v, want ErrConfig", err)
		}
	})
}
