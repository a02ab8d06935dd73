package catalogtest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// transact calls the given function in a transaction under the lock of a session, and returns the
// number of calls. If the store has no transactions, transact skips the rest of the case.
func (b *bench) transact(
	s catalog.Session, run func(ctx context.Context, n int) error,
) (runs int, err error) {
	b.Helper()
	err = b.Catalog.Transact(b.ctx, s, func(ctx context.Context) error {
		runs++
		return run(ctx, runs)
	})
	if errors.Is(err, catalog.ErrNoTransactions) {
		assert.Equal(b, runs, 0, "the store has no transactions, but called the function %d times (%d)")
		b.SkipNow()
	}
	return runs, err
}

func nothing(context.Context, int) error { return nil }

// transactCases check that a transaction commits if and only if its session still holds the lock.
var transactCases = []testCase{
	{"HeldToTheEnd_Commits_AndRaisesRev", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		if runs, err := b.transact(g.Session, nothing); err != nil || runs != 1 {
			b.Fatalf("%d runs: %v", runs, err)
		}
		b.wantDocument(b.document("locks", "balancer"), acquired(g, 1, 2))
	}},
	{"NotHeld_MatchesNothing", func(b *bench) {
		b.acquire(request("balancer", bob))
		b.wantUntouched("locks", "balancer", func() {
			_, err := b.transact(request("balancer", alice).Session, nothing)
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"TakenDuringTheRun_MatchesNothing", func(b *bench) {
		g, next := request("balancer", alice), request("balancer", bob)
		b.acquire(g)
		_, err := b.transact(g.Session, func(_ context.Context, n int) error {
			if n > 1 {
				return nil // some stores call the function again after the conflict
			}
			return assert.Err(On(b.Catalog).TakeOver(b.ctx, next, dead(g)))
		})
		b.wantErr(err, catalog.ErrNoMatch)
		assert.Equal(b, b.document("locks", "balancer").Lookup("ts").ObjectID(), next.TS,
			"ts is %v, want that of the next holder (%v)")
	}},
	{"RunFails_ItsErrorComesBack_NothingChanges", func(b *bench) {
		g, mine := request("balancer", alice), errors.New("mine")
		b.acquire(g)
		b.wantUntouched("locks", "balancer", func() {
			_, err := b.transact(g.Session, func(context.Context, int) error { return mine })
			assert.Equal(b, err, mine, "error is %v, want the function's error: %v")
		})
	}},
	{"AnySharer_Commits_AndAWaiterDoesNot", func(b *bench) {
		writer := request("balancer", bob)
		g := b.readers("balancer", 2)
		b.enter(writer)
		for _, one := range g {
			assert.NoErr(b, assert.Err(b.transact(one.Session, nothing)))
		}
		b.wantUntouched("locks", "balancer", func() {
			b.wantErr(assert.Err(b.transact(writer.Session, nothing)), catalog.ErrNoMatch)
		})
	}},
	{"LockTouchedDuringTheRun_SecondRunExcludesOthers", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		yield := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(b.ctx, limit)
			defer cancel()
			return On(b.Catalog).RequestYield(ctx, "balancer", "x", "y")
		}
		runs, err := b.transact(g.Session, func(ctx context.Context, n int) error {
			if n == 1 {
				// The first command of a transaction fixes its snapshot of the data. The write below comes
				// later, and so conflicts with the transaction.
				if _, err := b.Document(ctx, catalog.LocksCollection, "balancer"); err != nil {
					return err
				}
				return yield(time.Minute)
			}
			if yield(500*time.Millisecond) == nil {
				b.Error("a write succeeded beside a transaction that wrote the lock")
			}
			return nil
		})
		if err != nil || runs != 2 {
			b.Errorf("%d runs: %v", runs, err)
		}
		b.leave(g.Session)
	}},
	{"RenewAndPutFirstInside_ArePartOfIt", func(b *bench) {
		g := b.queued("balancer", 3)
		s, mine := g[0].Session, errors.New("mine")
		b.renew(renewal(g[0], 1))
		for i, end := range []error{mine, nil} {
			before := b.document("locks", "balancer")
			runs, err := b.transact(s, func(ctx context.Context, _ int) error {
				b.wantUntouched("locks", "balancer", func() {
					assert.NoErr(b, On(b.Catalog).Renew(ctx, renewal(g[0], int64(i+2))))
					assert.NoErr(b, On(b.Catalog).PutFirst(ctx, s, g[2].TS))
					b.wantErr(On(b.Catalog).PutFirst(ctx, s, s.TS), catalog.ErrNoMatch)
					b.wantErr(On(b.Catalog).Renew(ctx, renewal(g[0], 1)), catalog.ErrNoMatch)
				})
				return end
			})
			if !errors.Is(err, end) || runs != 1 {
				b.Errorf("%v after %d runs, want %v", err, runs, end)
			}
			if end != nil && !bytes.Equal(b.document("locks", "balancer"), before) {
				b.Error("an aborted transaction changed the document")
			}
		}
		b.wantLease(renewal(g[0], 3))
		b.leave(s, grant(g[2], planted+2))
	}},
	{"LockDocumentStaysAsItIs_ForeignFields", func(b *bench) {
		doc := with(held("balancer", alice), field("state", int32(2)), field("ts", historicalTS),
			field("waiters", bson.A{}))
		b.insert("locks", doc)
		_, err := b.transact(catalog.Session{Name: "balancer", TS: historicalTS}, nothing)
		assert.Must(b, err)
		b.wantDocument(b.document("locks", "balancer"), with(doc, field("rev", int64(1))))
	}},
}
