package memcatalog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
)

func inTransaction(t *testing.T, test func(t *testing.T, c *memcatalog.Catalog)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, memcatalog.New(memcatalog.Options{})) })
}

// If an open transaction has written a lock, another write to the lock waits until the transaction
// ends. Then the write evaluates its filter again, as on a replica set.
func TestTransaction_WriteWaits_UntilItHasEnded(t *testing.T) {
	inTransaction(t, func(t *testing.T, c *memcatalog.Catalog) {
		tx := c.Begin()
		assert.Value(c.EnterTransaction(tx.Context(t.Context()), grant("a", 1)))(t)
		if l, err := c.Read(t.Context(), "a"); !errors.Is(err, catalog.ErrNotFound) {
			t.Errorf("an uncommitted write is visible: %+v, %v", l, err)
		}
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { _ = tx.Commit() })
		l, err := catalogtest.On(c).Acquire(t.Context(), grant("a", 2))
		if err != nil || time.Since(start) != 3*time.Second {
			t.Fatalf("after %v: %+v, %v", time.Since(start), l, err)
		}
		assert.Is(t, tx.Commit(), memcatalog.ErrConflict)
	})
}

// If another write changes a lock after a transaction has begun, WithTransaction repeats the
// transaction.
func TestTransaction_OldSnapshot_RunsAgain(t *testing.T) {
	inTransaction(t, func(t *testing.T, c *memcatalog.Catalog) {
		runs := 0
		err := c.WithTransaction(t.Context(), func(ctx context.Context) error {
			if runs++; runs == 1 {
				assert.NoErr(t, assert.Err(catalogtest.On(c).Acquire(t.Context(), grant("a", 2))))
				if _, err := catalogtest.On(c).Leave(t.Context(), grant("a", 2).Session); err != nil {
					t.Error(err)
				}
			}
			_, err := c.EnterTransaction(ctx, grant("a", 1))
			return err
		})
		if err != nil || runs != 2 {
			t.Errorf("%d runs: %v", runs, err)
		}
	})
}

// Two transactions that write the same lock run one after the other, and both raise the fence.
func TestTransaction_Two_OneAfterTheOther(t *testing.T) {
	inTransaction(t, func(t *testing.T, c *memcatalog.Catalog) {
		inside, fences := 0, make(chan int64, 2)
		for n := range byte(2) {
			go func() {
				var fence int64
				err := c.WithTransaction(t.Context(), func(ctx context.Context) error {
					l, err := c.EnterTransaction(ctx, grant("a", n+1))
					if err != nil {
						return err
					}
					if inside++; inside != 1 {
						t.Error("both transactions run at the same time")
					}
					time.Sleep(time.Second)
					inside--
					fence = l.Fence
					return nil
				})
				assert.NoErr(t, err)
				fences <- fence
			}()
		}
		if a, b := <-fences, <-fences; b != a+1 {
			t.Errorf("fences %d, then %d", a, b)
		}
	})
}
