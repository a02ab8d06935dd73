package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"mongodlm/claim"
	"mongodlm/internal/test/assert"
)

// It tries to break: processes that all insert the same keys for the first time, while the index is
// made and beside rows without a key, have each key once.
func TestClaim_Insert_ManyProcesses_EachKeyOnce(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		const processes, keys = 4, 10
		coll, ctx := w.rowsOf(t, w.d.app), t.Context()
		var all sync.WaitGroup
		var inserted, id atomic.Int64
		m := w.patient(t)
		for range processes {
			q := w.claims(t, m, coll, claim.Config{})
			all.Go(func() {
				for i := range keys {
					assert.NoErr(t, q.Add(ctx, job{ID: int(id.Add(1))}))
					ok, err := q.Insert(ctx, fmt.Sprint("key ", i), job{ID: int(id.Add(1)), N: i})
					assert.NoErr(t, err)
					if ok {
						inserted.Add(1)
					}
				}
			})
		}
		all.Wait()
		n, err := claim.Count(ctx, coll, claim.Config{})
		if err != nil || inserted.Load() != keys || n.Ready != (processes+1)*keys {
			t.Errorf("%d inserted, %+v, %v", inserted.Load(), n, err)
		}
	})
}

// An insert by DoneWith belongs to its transaction, also when it is the first one, whose index is
// not there yet: what is rolled back leaves the key free, and a key that is taken fails nothing.
func TestClaim_Insert_InDoneWith(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll, ctx := w.rowsOf(t, w.d.app), t.Context()
		q := w.claims(t, w.patient(t), coll, claim.Config{InFlight: 5})
		assert.Must(t, q.Add(ctx, jobs(3)...))
		rows, err := q.Claim(ctx, 3)
		if err != nil || len(rows) != 3 {
			t.Fatal(len(rows), err)
		}
		errNo := errors.New("no")
		insert := func(row *claim.Row[job], id int, end error) (inserted bool, err error) {
			err = row.DoneWith(ctx, func(ctx context.Context) (err error) {
				if inserted, err = q.Insert(ctx, "next", job{ID: id}); err != nil {
					return err
				}
				return end
			})
			return inserted, err
		}
		ok, err := insert(rows[0], 100, errNo)
		if errors.Is(err, claim.ErrNoTransactions) {
			return
		}
		if !ok || !errors.Is(err, errNo) {
			t.Errorf("%v, %v", ok, err)
		}
		if ok, err = insert(rows[0], 100, nil); !ok || err != nil {
			t.Errorf("after the rollback: %v, %v", ok, err)
		}
		if ok, err = insert(rows[1], 101, nil); ok || err != nil {
			t.Errorf("the second time: %v, %v", ok, err)
		}
		n, err := claim.Count(ctx, coll, claim.Config{})
		if err != nil || n != (claim.Counts{Ready: 1, Claimed: 1, Done: 2}) {
			t.Errorf("%+v, %v", n, err)
		}
		if _, err = insert(rows[2], 1, nil); err != nil { // its _id is taken, but so is the key
			t.Error(err)
		}
	})
}

// Two transactions insert the same key at the same time: one of them does, and neither fails.
func TestClaim_Insert_TwoTransactionsAtOnce(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		const workers = 4
		coll, ctx := w.rowsOf(t, w.d.app), t.Context()
		q := w.claims(t, w.patient(t), coll, claim.Config{InFlight: workers})
		assert.Must(t, q.Add(ctx, jobs(workers)...))
		rows, err := q.Claim(ctx, workers)
		if err != nil || len(rows) != workers {
			t.Fatal(len(rows), err)
		}
		var all sync.WaitGroup
		var inserted atomic.Int64
		for i, row := range rows {
			all.Go(func() {
				var ok bool
				err := row.DoneWith(ctx, func(ctx context.Context) (err error) {
					ok, err = q.Insert(ctx, "next", job{ID: 100 + i})
					return err
				})
				if ok && err == nil {
					inserted.Add(1)
				}
				if err != nil && !errors.Is(err, claim.ErrNoTransactions) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		n, err := claim.Count(ctx, coll, claim.Config{})
		if err != nil || n != (claim.Counts{Claimed: workers}) &&
			(n != (claim.Counts{Ready: 1, Done: workers}) || inserted.Load() != 1) {
			t.Errorf("%d inserted, %+v, %v", inserted.Load(), n, err)
		}
	})
}
