package integration_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/claim"
	"mongodlm/internal/test/assert"
)

// transactional are the deployments with transactions in any database.
var transactional = named("replicaset", "mongos")

// It tries to break: a row is claimed, renewed and done by a caller whose context carries a
// transaction, which then ends without having happened: another worker has the row as well.
func TestClaim_TransactionOfTheCaller_IsNotJoined(t *testing.T) {
	t.Parallel()
	forThese(t, transactional, func(t *testing.T, w *world) {
		coll, ctx := w.rowsOf(t, w.d.app), t.Context()
		cfg := claim.Config{InFlight: 9, Sort: bson.D{field("_id", 1)}}
		q, other := w.claims(t, w.patient(t), coll, cfg), w.claims(t, w.patient(t), coll, cfg)
		assert.Must(t, q.Add(ctx, jobs(5)...))
		slot := assert.Value(q.Claim(ctx, 1))(t)
		assert.Equal(t, len(slot), 1, "%d rows, want %d")
		session := assert.Value(w.d.app.StartSession())(t)
		defer session.EndSession(context.WithoutCancel(ctx))
		aborted := func(work func(ctx context.Context)) {
			t.Helper()
			assert.Must(t, session.StartTransaction())
			work(mongo.NewSessionContext(ctx, session))
			assert.Must(t, session.AbortTransaction(ctx))
		}
		var one, two []*claim.Row[job]
		aborted(func(ctx context.Context) {
			one = assert.Value(q.Claim(ctx, 1))(t)
			two = assert.Value(q.Claim(ctx, 2))(t)
		})
		if len(one) != 1 || len(two) != 2 {
			t.Fatalf("%d and %d rows, want 1 and 2", len(one), len(two))
		}
		rest := assert.Value(other.Claim(ctx, 9))(t)
		if len(rest) != 1 || rest[0].Doc.ID != 4 {
			t.Errorf("the other process got %d rows, want the last one alone", len(rest))
		}
		aborted(func(ctx context.Context) {
			assert.NoErr(t, one[0].Renew(ctx))
			assert.NoErr(t, one[0].Done(ctx))
			assert.NoErr(t, two[0].DoneWith(ctx, func(context.Context) error { return nil }))
			n := assert.Value(q.Counts(ctx))(t)
			assert.Equal(t, n, claim.Counts{Claimed: 3, Done: 2}, "in the transaction: %+v, want %+v")
			_, err := q.Insert(ctx, "key", job{ID: 19})
			if err == nil {
				t.Error("the first Insert made an index in a transaction")
			}
			assert.NoErr(t, q.Add(ctx, job{ID: 10}))
		})
		ctx = mongo.NewSessionContext(ctx, session) // it is over: no transaction
		for _, want := range []bool{true, false} {
			ok := assert.Value(q.Insert(ctx, "key", job{ID: 19}))(t)
			assert.Equal(t, ok, want, "inserted: %v, want %v")
		}
		wantCounts(t, q, 0, claim.Counts{Ready: 1, Claimed: 3, Done: 2})
	})
}

// It tries to break: a renewal within DoneWith waits for its own transaction, and an error of work
// that is the server's own word for no transactions is taken for that.
func TestClaim_DoneWith_ErrorsOfWork(t *testing.T) {
	t.Parallel()
	forThese(t, transactional, func(t *testing.T, w *world) {
		for _, remove := range []bool{false, true} {
			coll, ctx := w.rowsOf(t, w.d.app), t.Context()
			q := w.claims(t, w.patient(t), coll, claim.Config{DeleteDone: remove})
			assert.Must(t, q.Add(ctx, job{ID: 1}))
			row := assert.Value(q.Claim(ctx, 1))(t)[0]
			err := row.DoneWith(ctx, func(ctx context.Context) error {
				wantErr(t, row.Renew(ctx), claim.ErrFinished)
				return w.db.RunCommand(ctx, bson.D{field("count", coll.Name())}).Err()
			})
			var refused mongo.CommandError
			if !errors.As(err, &refused) || errors.Is(err, claim.ErrNoTransactions) {
				t.Errorf("a command that no transaction has: %v", err)
			}
			wantCounts(t, q, 0, claim.Counts{Claimed: 1})
			assert.NoErr(t, row.Renew(ctx))
			assert.NoErr(t, row.DoneWith(ctx, func(context.Context) error { return nil }))
		}
	})
}
