package catalogtest

import (
	"context"
	"errors"
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// free is the least a free lock document has, held the least a held one has.
func free(name string) bson.D {
	return bson.D{field("_id", name), field("state", int32(0))}
}

func held(name, process string) bson.D {
	return bson.D{
		field("_id", name), field("state", int32(1)), field("process", process),
		field("ts", bson.NewObjectID()),
	}
}

var acquireCases = []testCase{
	{"StateIsAnArrayOfZero_IsNotFree", func(b *bench) { // F2: the filter {state: 0} would match it
		b.insert("locks", bson.D{field("_id", "balancer"), field("state", bson.A{int32(0)})})
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
			b.wantErr(err, catalog.ErrNotFree)
		})
	}},
	{"NewName_WritesTheWholeDocument", func(b *bench) {
		r := request("balancer", alice)
		l := b.acquire(r)
		b.wantDocument(b.document("locks", "balancer"), acquired(r, 1, 1))
		if !l.When.IsZero() && !b.near(l.When) {
			b.Errorf("when is %v, not the server's clock", l.When)
		}
		l.When = time.Time{}
		want := catalog.Lock{
			Name: "balancer", Held: true, State: 1, Process: alice, Who: r.Who, Why: r.Why,
			TS: r.TS, Fence: 1, Takeover: takeover,
		}
		if !reflect.DeepEqual(l, want) {
			b.Errorf("lock\nwant %+v\ngot  %+v", want, l)
		}
	}},
	{"FreeDocument_KeepsForeignFieldsAndRaisesFence", func(b *bench) {
		none := bson.A{}
		r := request("balancer", alice)
		b.insert("locks", append(free("balancer"), field("fence", int64(41)),
			field("waiters", none), field("x", bson.D{field("y", "z")}), field("rev", int64(7)),
			field("when", bson.DateTime(5)), field("who", "old")))
		if l := b.acquire(r); l.Fence != 42 {
			b.Errorf("fence: want 42, got %d", l.Fence)
		}
		b.wantDocument(b.document("locks", "balancer"), with(acquired(r, 42, 8),
			field("waiters", none), field("x", bson.D{field("y", "z")})))
	}},
	{"FreeDocumentWithWaiters_IsNotFreeAndUntouched", func(b *bench) {
		b.insert("locks", append(free("balancer"), field("fence", int64(41)),
			field("waiters", bson.A{waiting(request("balancer", bob))})))
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
			b.wantErr(err, catalog.ErrNotFree)
		})
	}},
	{"HeldDocument_IsNotFreeAndUntouched", func(b *bench) {
		b.acquire(request("balancer", alice))
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", bob))
			b.wantErr(err, catalog.ErrNotFree)
		})
	}},
	{"SameGrantTwice_IsNotFree", func(b *bench) {
		r := request("balancer", alice)
		b.acquire(r)
		_, err := On(b.Catalog).Acquire(b.ctx, r)
		b.wantErr(err, catalog.ErrNotFree)
	}},
	{"AfterRelease_FenceRises", func(b *bench) {
		for want := int64(1); want <= 5; want++ {
			r := request("balancer", alice)
			if l := b.acquire(r); l.Fence != want {
				b.Fatalf("fence: want %d, got %d", want, l.Fence)
			}
			assert.Must(b, b.release(r.Session))
		}
	}},
	{"NumericZero_IsFree", func(b *bench) { // F2
		for _, zero := range []any{int32(0), int64(0), 0.0, math.Copysign(0, -1)} {
			name := label(zero)
			b.insert("locks", bson.D{field("_id", name), field("state", zero)})
			r := request(name, alice)
			b.acquire(r)
			b.wantDocument(b.document("locks", name), acquired(r, 1, 1))
		}
	}},
	{"AnythingElse_IsNotFree", func(b *bench) { // F1, F2
		for i, state := range []any{
			nil, "0", "2", "", true, false, bson.A{}, bson.D{}, math.NaN(), 2.7, 0.5, int32(-1),
			int32(1), int32(2), int32(3), int64(1), 1.0, int64(1) << 40, bson.DateTime(0),
			math.Inf(1), bson.NilObjectID,
		} {
			name := string(rune('a'+i)) + label(state)
			doc := bson.D{field("_id", name), field("state", state)}
			if b.storesNo(doc) {
				continue
			}
			b.insert("locks", doc)
			b.wantUntouched("locks", name, func() {
				_, err := On(b.Catalog).Acquire(b.ctx, request(name, alice))
				b.wantErr(err, catalog.ErrNotFree)
			})
		}
	}},
	{"StateMissing_IsNotFree", func(b *bench) { // F1
		b.insert("locks", bson.D{field("_id", "balancer"), field("fence", int64(3))})
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
			b.wantErr(err, catalog.ErrNotFree)
		})
		_, err := b.Catalog.Read(b.ctx, "balancer")
		b.wantMalformed(err, "locks", "balancer", "state")
	}},
	{"FenceOfInt32_IsRaised", func(b *bench) { // F8
		b.insert("locks", append(free("balancer"), field("fence", int32(6))))
		if l := b.acquire(request("balancer", alice)); l.Fence != 7 {
			b.Errorf("fence: want 7, got %d", l.Fence)
		}
	}},
	{"AnyName_IsData", func(b *bench) { // G4
		for _, name := range []string{
			"$set", "a.b", "$where.x", " ", "..", "../x", "config.locks", "🔒", "\u202eabc", "a\nb",
			strings.Repeat("n", 1024), `{"$gt": ""}`, "'\"", "has the field 'rev' of",
		} {
			r := request(name, "$"+alice)
			r.Who, r.Why = "$who", "$$NOW"
			b.acquire(r)
			b.wantDocument(b.document("locks", name), acquired(r, 1, 1))
			_, err := On(b.Catalog).Acquire(b.ctx, request(name, bob))
			b.wantErr(err, catalog.ErrNotFree)
			if err := b.release(r.Session); err != nil {
				b.Errorf("%q: release: %v", name, err)
			}
		}
	}},
	{"NamesThatLookAlike_AreDifferentLocks", func(b *bench) { // F13, G5
		for _, name := range []string{"é", "e\u0301", "E\u0301", "lock", "Lock", "lock ", " lock"} {
			b.acquire(request(name, alice))
		}
	}},
	{"EmptyAndLongTexts_AreKept", func(b *bench) { // G6
		for _, why := range []string{"", strings.Repeat("w", 1024), "two\nlines \x1b[31m"} {
			r := request(label(len(why)), alice)
			r.Why = why
			if l := b.acquire(r); l.Why != why {
				b.Errorf("why: want %q, got %q", why, l.Why)
			}
		}
	}},
	{"DeletedWhileHeld_FenceStartsAnewUntilSeeded", func(b *bench) { // F12
		r := request("balancer", alice)
		b.acquire(r)
		assert.Must(b, b.Delete(b.ctx, "locks", "balancer"))
		b.wantErr(b.release(r.Session), catalog.ErrNoMatch)
		next := request("balancer", bob)
		if l := b.acquire(next); l.Fence != 1 {
			b.Errorf("fence: want 1, got %d", l.Fence)
		}
		l, err := On(b.Catalog).SeedFence(b.ctx, next.Session, 1_700_000_000_000)
		if err != nil || l.Fence != 1_700_000_000_000 {
			b.Errorf("seeded: %+v, %v", l, err)
		}
	}},
	{"EndedContext_IsCertainlyNotApplied", func(b *bench) {
		r := request("balancer", alice)
		for name, op := range everyOperation(b.Catalog, r) {
			b.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				err := op(ctx)
				if !errors.Is(err, context.Canceled) || errors.Is(err, catalog.ErrUnknownOutcome) {
					t.Errorf("want context.Canceled and no more, got %v", err)
				}
			})
		}
		if raw := b.document("locks", "balancer"); raw != nil {
			b.Errorf("a document was written: %v", raw)
		}
	}},
}

// everyOperation calls each operation of a store with plain arguments.
func everyOperation(c Kept, r catalog.Request) map[string]func(context.Context) error {
	all := ofHistory(c)
	maps.Copy(all, map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error { return assert.Err(On(c).Acquire(ctx, r)) },
		"Confirm": func(ctx context.Context) error { return assert.Err(On(c).Confirm(ctx, r)) },
		"SeedFence": func(ctx context.Context) error {
			return assert.Err(On(c).SeedFence(ctx, r.Session, 9))
		},
		"Look": func(ctx context.Context) error { _, err := catalog.LookAt(ctx, c, r.Name); return err },
		"Condemn": func(ctx context.Context) error {
			return On(c).Condemn(ctx, r.Process, nil, catalog.Condemnation{By: "x"})
		},
		"Overtake": func(ctx context.Context) error {
			return assert.Err(On(c).Overtake(ctx, r, catalog.Holder{Session: r.Session}))
		},
		"PutFirst": func(ctx context.Context) error { return On(c).PutFirst(ctx, r.Session, r.TS) },
		"RequestYield": func(ctx context.Context) error {
			return On(c).RequestYield(ctx, r.Name, "x", "y")
		},
		"Read": func(ctx context.Context) error { return assert.Err(c.Read(ctx, r.Name)) },
		"Ping": func(ctx context.Context) error {
			return assert.Err(c.Ping(ctx, beat(r.Process, 1)))
		},
		"RemovePing": func(ctx context.Context) error { return On(c).RemovePing(ctx, r.Process) },
		"Held":       func(ctx context.Context) error { return assert.Err(c.Held(ctx, r.Process)) },
		"HeldSummary": func(ctx context.Context) error {
			return assert.Err(c.HeldSummary(ctx, r.Process))
		},
		"Prune":   func(ctx context.Context) error { return assert.Err(c.Prune(ctx, time.UnixMilli(0))) },
		"Prepare": func(ctx context.Context) error { return assert.Err(c.Prepare(ctx)) },
		"Hello":   func(ctx context.Context) error { return assert.Err(c.Hello(ctx)) },
		"List": func(ctx context.Context) error {
			for _, err := range c.List(ctx, false) {
				return err
			}
			return nil
		},
		"Break": func(ctx context.Context) error {
			return assert.Err(On(c).Break(ctx, catalog.Session{Name: r.Name}, 1, "x"))
		},
		"Enter": func(ctx context.Context) error {
			return assert.Err(On(c).Enter(ctx, r, catalog.Queue))
		},
		"Leave": func(ctx context.Context) error { return assert.Err(On(c).Leave(ctx, r.Session)) },
		"Evict": func(ctx context.Context) error {
			return assert.Err(On(c).Evict(ctx, catalog.Holder{Session: r.Session, Process: r.Process}, "x"))
		},
		"GrantNext": func(ctx context.Context) error { return assert.Err(On(c).GrantNext(ctx, r.Name)) },
		"Snapshots": func(ctx context.Context) error {
			return assert.Err(c.Snapshots(ctx, []string{r.Name}))
		},
		"HeldOrFree": func(ctx context.Context) error {
			return assert.Err(c.HeldOrFree(ctx, r.Process, []string{r.Name}, nil))
		},
		"Waiting": func(ctx context.Context) error {
			for _, err := range c.List(ctx, true) {
				return err
			}
			return nil
		},
	})
	return all
}
