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

// transactCases test transactions. A server without transactions returns an error and does not run
// the function. Other servers commit if and only if the session still holds the lock.
var transactCases = []testCase{
	{"HeldToTheEnd_Commits_AndRaisesRev", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		runs := 0
		err := b.Catalog.Transact(b.ctx, g.Session, func(context.Context) error { runs++; return nil })
		if b.noTransactions(err, runs) {
			return
		}
		if err != nil || runs != 1 {
			b.Fatalf("%d runs: %v", runs, err)
		}
		b.wantDocument(b.document("locks", "balancer"), with(acquired(g, 1, 2)))
	}},
	{"NotHeld_MatchesNothing", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(request("balancer", bob))
		b.wantUntouched("locks", "balancer", func() {
			runs := 0
			err := b.Catalog.Transact(b.ctx, g.Session, func(context.Context) error { runs++; return nil })
			if !b.noTransactions(err, runs) {
				b.wantErr(err, catalog.ErrNoMatch)
			}
		})
	}},
	{"TakenDuringTheRun_MatchesNothing", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		next := request("balancer", bob)
		runs := 0
		err := b.Catalog.Transact(b.ctx, g.Session, func(context.Context) error {
			if runs++; runs > 1 {
				return nil // a store with snapshots repeats the run after the conflict
			}
			_, err := On(b.Catalog).TakeOver(b.ctx, next, catalog.Holder{Session: g.Session, Process: alice})
			return err
		})
		if b.noTransactions(err, runs) {
			return
		}
		b.wantErr(err, catalog.ErrNoMatch)
		assert.Equal(b, b.document("locks", "balancer").Lookup("ts").ObjectID(), next.TS,
			"ts is %v, want that of the next holder (%v)")
	}},
	{"RunFails_ItsErrorComesBack_NothingChanges", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		mine := errors.New("mine")
		b.wantUntouched("locks", "balancer", func() {
			runs := 0
			err := b.Catalog.Transact(b.ctx, g.Session, func(context.Context) error { runs++; return mine })
			if !b.noTransactions(err, runs) && err != mine {
				b.Errorf("error is %v, want run's own, as it is", err)
			}
		})
	}},
	{"AnySharer_Commits_AndAWaiterDoesNot", func(b *bench) {
		g := b.readers("balancer", 2)
		writer := request("balancer", bob)
		b.enter(writer)
		run := func(s catalog.Session) (none bool, err error) {
			runs := 0
			err = b.Catalog.Transact(b.ctx, s, func(context.Context) error { runs++; return nil })
			return b.noTransactions(err, runs), err
		}
		for _, one := range g {
			if none, err := run(one.Session); err != nil && !none {
				b.Errorf("%s: %v", one.Process, err)
			}
		}
		b.wantUntouched("locks", "balancer", func() {
			if none, err := run(writer.Session); !none {
				b.wantErr(err, catalog.ErrNoMatch)
			}
		})
	}},
	{"LockTouchedDuringTheRun_SecondRunKeepsOthersOff", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		yield := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(b.ctx, limit)
			defer cancel()
			return On(b.Catalog).RequestYield(ctx, "balancer", "x", "y")
		}
		runs := 0
		err := b.Catalog.Transact(b.ctx, g.Session, func(ctx context.Context) error {
			if runs++; runs == 1 {
				// A transaction reads a snapshot as of its first command. Without this command the snapshot
				// would include the write below, and there would be no conflict.
				if _, err := b.Document(ctx, catalog.LocksCollection, "balancer"); err != nil {
					return err
				}
				return yield(time.Minute)
			}
			if yield(500*time.Millisecond) == nil {
				b.Error("a write got through beside a transaction that has written the lock")
			}
			return nil
		})
		if b.noTransactions(err, runs) {
			return
		}
		if err != nil || runs != 2 {
			b.Errorf("%d runs: %v", runs, err)
		}
		b.leave(g.Session)
	}},
	{"RenewAndPutFirstInside_ArePartOfIt", func(b *bench) {
		g := b.inLine("balancer", 3)
		s := g[0].Session
		b.renew(renewal(g[0], 1))
		mine, runs := errors.New("mine"), 0
		for n, end := range []error{mine, nil} {
			before := b.document("locks", "balancer")
			err := b.Catalog.Transact(b.ctx, s, func(ctx context.Context) error {
				runs++
				b.wantUntouched("locks", "balancer", func() {
					assert.NoErr(b, On(b.Catalog).Renew(ctx, renewal(g[0], int64(n+2))))
					assert.NoErr(b, On(b.Catalog).PutFirst(ctx, s, g[2].TS))
					b.wantErr(On(b.Catalog).PutFirst(ctx, s, s.TS), catalog.ErrNoMatch)
					b.wantErr(On(b.Catalog).Renew(ctx, renewal(g[0], 1)), catalog.ErrNoMatch)
				})
				return end
			})
			if b.noTransactions(err, runs) {
				return
			}
			if !errors.Is(err, end) || runs != n+1 {
				b.Errorf("%v after %d runs, want %v", err, runs, end)
			}
			if end != nil {
				if !bytes.Equal(b.document("locks", "balancer"), before) {
					b.Error("an aborted transaction left something")
				}
			}
		}
		b.wantLease(renewal(g[0], 3))
		b.leave(s, grant(g[2], planted+2))
	}},
	{"LockDocumentStaysAsItIs_ForeignFields", func(b *bench) {
		ts := bson.NewObjectID()
		doc := bson.D{
			field("_id", "balancer"), field("state", int32(2)), field("process", alice),
			field("ts", ts), field("waiters", bson.A{}),
		}
		b.insert("locks", doc)
		runs := 0
		s := catalog.Session{Name: "balancer", TS: ts}
		err := b.Catalog.Transact(b.ctx, s, func(context.Context) error { runs++; return nil })
		if b.noTransactions(err, runs) {
			return
		}
		assert.Must(b, err)
		b.wantDocument(b.document("locks", "balancer"), with(doc, field("rev", int64(1))))
	}},
}

// noTransactions reports whether the store has no transactions. It fails if such a store ran the
// function.
func (b *bench) noTransactions(err error, runs int) bool {
	b.Helper()
	if !errors.Is(err, catalog.ErrNoTransactions) {
		return false
	}
	if runs > 0 {
		b.Errorf("it has no transactions, and ran %d times", runs)
	}
	return true
}
