package catalogtest

import (
	"errors"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// pinged is the document that the n-th ping of b leaves.
func pinged(b catalog.Beat, seq int64) bson.D {
	return bson.D{
		field("_id", b.Process),
		field("ping", serverDate{}),
		field("local", bson.NewDateTimeFromTime(b.Local)),
		field("seq", seq),
		field("takeoverMS", b.Takeover.Milliseconds()),
		field("pingMS", b.Interval.Milliseconds()),
	}
}

var pingCases = []testCase{
	{"First_WritesTheWholeDocument", func(b *bench) {
		p := b.ping(alice)
		b.wantDocument(b.document("lockpings", alice), pinged(beat(alice), 1))
		if !b.near(p.At) {
			b.Errorf("ping is %v, not the server's clock", p.At)
		}
		p.At = time.Time{}
		want := catalog.Ping{
			Process: alice, Local: beat(alice).Local, Seq: 1, HasSeq: true,
			Takeover: takeover, Interval: 30 * time.Second,
		}
		if p != want {
			b.Errorf("ping\nwant %+v\ngot  %+v", want, p)
		}
	}},
	{"Next_RaisesSeqAndRenewsAll", func(b *bench) {
		b.ping(alice)
		next := beat(alice)
		next.Local = next.Local.Add(time.Second)
		next.Takeover, next.Interval = time.Minute, time.Second
		p, err := b.Catalog.Ping(b.ctx, next)
		if err != nil || p.Seq != 2 || p.Takeover != time.Minute || p.Interval != time.Second {
			b.Fatalf("ping: %+v, %v", p, err)
		}
		b.wantDocument(b.document("lockpings", alice), pinged(next, 2))
	}},
	{"ForeignFields_Survive", func(b *bench) {
		b.insert("lockpings", bson.D{field("_id", alice), field("ping", bson.DateTime(5)),
			field("seq", int64(8)), field("x", "y")})
		b.ping(alice)
		b.wantDocument(b.document("lockpings", alice),
			with(pinged(beat(alice), 9), field("x", "y")))
	}},
	{"AfterRemoval_StartsAtOne", func(b *bench) {
		b.ping(alice)
		b.ping(alice)
		if err := b.Catalog.RemovePing(b.ctx, alice); err != nil {
			b.Fatal(err)
		}
		if p := b.ping(alice); p.Seq != 1 {
			b.Errorf("seq: want 1, got %d", p.Seq)
		}
	}},
	{"SeqCannotBeRaised_IsMalformed", func(b *bench) { // F17
		for i, seq := range []any{"x", nil, int64(math.MaxInt64)} {
			process := label(i)
			b.insert("lockpings", bson.D{field("_id", process), field("ping", bson.DateTime(5)),
				field("seq", seq)})
			b.wantUntouched("lockpings", process, func() {
				_, err := b.Catalog.Ping(b.ctx, beat(process))
				b.wantMalformed(err, "lockpings", process, "seq")
			})
		}
	}},
	{"MarkOfAnyType_Condemns", func(b *bench) { // F18
		for i, mark := range []any{true, nil, "yes", bson.D{}} {
			process := label(i)
			b.insert("lockpings", bson.D{field("_id", process), field("ping", bson.DateTime(5)),
				field("seq", int64(1)), field("condemned", mark)})
			b.wantUntouched("lockpings", process, func() {
				_, err := b.Catalog.Ping(b.ctx, beat(process))
				b.wantErr(err, catalog.ErrCondemned)
			})
		}
	}},
	{"Remove_TakesTheDocument", func(b *bench) {
		b.ping(alice)
		b.ping(bob)
		if err := b.Catalog.RemovePing(b.ctx, alice); err != nil {
			b.Fatal(err)
		}
		if raw := b.document("lockpings", alice); raw != nil {
			b.Errorf("still there: %v", raw)
		}
		if b.document("lockpings", bob) == nil {
			b.Error("another process's ping is gone")
		}
	}},
	{"Remove_OfNone_IsNoError", func(b *bench) {
		if err := b.Catalog.RemovePing(b.ctx, alice); err != nil {
			b.Error(err)
		}
	}},
	{"Remove_OfCondemned_LeavesIt", func(b *bench) {
		if err := b.Catalog.Condemn(b.ctx, alice, nil, catalog.Condemnation{By: bob}); err != nil {
			b.Fatal(err)
		}
		b.wantUntouched("lockpings", alice, func() {
			if err := b.Catalog.RemovePing(b.ctx, alice); err != nil {
				b.Error(err)
			}
		})
	}},
}

var condemnCases = []testCase{
	{"AsWatched_MarksAndKeepsTheRest", func(b *bench) {
		p := b.ping(alice)
		how := catalog.Condemnation{By: bob, Evidence: "$silent.for 15m"}
		if err := b.Catalog.Condemn(b.ctx, alice, &p, how); err != nil {
			b.Fatal(err)
		}
		b.wantDocument(b.document("lockpings", alice), with(pinged(beat(alice), 1),
			field("condemned", bson.D{
				field("by", bob), field("at", serverDate{}), field("evidence", how.Evidence),
			})))
	}},
	{"Condemned_CannotPing", func(b *bench) {
		p := b.ping(alice)
		how := catalog.Condemnation{By: bob, Evidence: "silent"}
		if err := b.Catalog.Condemn(b.ctx, alice, &p, how); err != nil {
			b.Fatal(err)
		}
		b.wantUntouched("lockpings", alice, func() {
			_, err := b.Catalog.Ping(b.ctx, beat(alice))
			b.wantErr(err, catalog.ErrCondemned)
			var c *catalog.CondemnedError
			if !errors.As(err, &c) || c.Process != alice || c.Condemnation.By != bob ||
				c.Condemnation.Evidence != "silent" || c.Condemnation.At.IsZero() {
				b.Errorf("facts: %+v", c)
			}
		})
	}},
	{"PingedMeanwhile_MatchesNothing", func(b *bench) {
		p := b.ping(alice)
		b.ping(alice)
		b.wantUntouched("lockpings", alice, func() {
			err := b.Catalog.Condemn(b.ctx, alice, &p, catalog.Condemnation{By: bob})
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"Twice_SecondMatchesNothing", func(b *bench) {
		p := b.ping(alice)
		if err := b.Catalog.Condemn(b.ctx, alice, &p, catalog.Condemnation{By: bob}); err != nil {
			b.Fatal(err)
		}
		b.wantUntouched("lockpings", alice, func() {
			err := b.Catalog.Condemn(b.ctx, alice, &p, catalog.Condemnation{By: "third"})
			b.wantErr(err, catalog.ErrNoMatch)
			err = b.Catalog.Condemn(b.ctx, alice, nil, catalog.Condemnation{By: "third"})
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"RemovedMeanwhile_CreatesNothing", func(b *bench) {
		p := b.ping(alice)
		if err := b.Catalog.RemovePing(b.ctx, alice); err != nil {
			b.Fatal(err)
		}
		err := b.Catalog.Condemn(b.ctx, alice, &p, catalog.Condemnation{By: bob})
		b.wantErr(err, catalog.ErrNoMatch)
		if raw := b.document("lockpings", alice); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"NoneThere_InsertsOneWithPing", func(b *bench) {
		how := catalog.Condemnation{By: bob, Evidence: "no ping"}
		if err := b.Catalog.Condemn(b.ctx, alice, nil, how); err != nil {
			b.Fatal(err)
		}
		b.wantDocument(b.document("lockpings", alice), bson.D{
			field("_id", alice), field("ping", serverDate{}), field("condemned", bson.D{
				field("by", bob), field("at", serverDate{}), field("evidence", "no ping"),
			}),
		})
		_, err := b.Catalog.Ping(b.ctx, beat(alice))
		b.wantErr(err, catalog.ErrCondemned)
	}},
	{"OneAppeared_MatchesNothing", func(b *bench) {
		b.ping(alice)
		b.wantUntouched("lockpings", alice, func() {
			err := b.Catalog.Condemn(b.ctx, alice, nil, catalog.Condemnation{By: bob})
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"SeqOfAnyNumericType_IsWatched", func(b *bench) {
		for i, seq := range []any{int32(4), int64(4), 4.0} {
			process := label(i)
			b.insert("lockpings", bson.D{field("_id", process), field("ping", bson.DateTime(5)),
				field("seq", seq)})
			b.acquire(grant(process, process))
			watched := b.look(process).Ping
			if err := b.Catalog.Condemn(b.ctx, process, watched, catalog.Condemnation{}); err != nil {
				b.Errorf("seq %T: %v", seq, err)
			}
		}
	}},
}

var choreCases = []testCase{
	{"Prune_TakesOldAndLeavesYoungAndHolders", func(b *bench) {
		old := bson.NewDateTimeFromTime(b.ago(100 * time.Hour))
		young := bson.NewDateTimeFromTime(b.ago(time.Hour))
		plant := func(id any, ping any) {
			b.insert("lockpings", bson.D{field("_id", id), field("ping", ping)})
		}
		for i := range 30 {
			plant(label(i), old)
		}
		plant("young", young)
		plant("holder", old)
		plant("last holder", old)
		plant("text", "2001-01-01")
		plant("null", nil)
		plant(int32(7), old)
		b.insert("locks", held("held", "holder"))
		b.insert("locks", append(free("free"), field("process", "last holder")))
		n, err := b.Catalog.Prune(b.ctx, b.ago(96*time.Hour))
		if err != nil || n != 31 { // the last holder of a free lock needs no ping
			b.Fatalf("want 31, got %d, %v", n, err)
		}
		for _, id := range []string{"young", "holder", "text", "null"} {
			if b.document("lockpings", id) == nil {
				b.Errorf("%q is gone", id)
			}
		}
		if n, err := b.Catalog.Prune(b.ctx, b.ago(96*time.Hour)); err != nil || n != 0 {
			b.Errorf("again: want 0, got %d, %v", n, err)
		}
	}},
	{"Prune_OfNothing_IsZero", func(b *bench) {
		if n, err := b.Catalog.Prune(b.ctx, b.ago(0)); err != nil || n != 0 {
			b.Errorf("want 0, got %d, %v", n, err)
		}
	}},
	{"Prune_TakesOldCondemned", func(b *bench) {
		b.insert("lockpings", bson.D{field("_id", alice), field("ping", bson.DateTime(5)),
			field("condemned", bson.D{field("by", bob)})})
		if n, err := b.Catalog.Prune(b.ctx, b.ago(96*time.Hour)); err != nil || n != 1 {
			b.Errorf("want 1, got %d, %v", n, err)
		}
	}},
	{"PrepareTwice_IsNoError", func(b *bench) { // J11
		for range 2 {
			if warnings, err := b.Catalog.Prepare(b.ctx); err != nil || len(warnings) > 0 {
				b.Errorf("%q, %v", warnings, err)
			}
		}
		b.acquire(grant("balancer", alice))
	}},
	{"Hello_SaysWhoItIs", func(b *bench) {
		s, err := b.Catalog.Hello(b.ctx)
		if err != nil || s.Kind == "" || s.Version == "" {
			b.Errorf("%+v, %v", s, err)
		}
		if s.Kind != catalog.Mongos && s.Time.IsZero() {
			b.Error("no clock")
		}
	}},
}
