package catalogtest

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

func pinged(b catalog.Heartbeat) bson.D {
	return bson.D{
		field("_id", b.Process),
		field("ping", serverDate),
		field("local", bson.NewDateTimeFromTime(b.Local)),
		field("seq", b.Seq),
		field("takeoverMS", b.Takeover.Milliseconds()),
		field("pingMS", b.Interval.Milliseconds()),
	}
}

var pingCases = []testCase{
	{"First_WritesTheWholeDocument", func(b *bench) {
		p := assert.Value(b.Catalog.Ping(b.ctx, beat(alice, 1)))(b)
		b.wantDocument(b.document("lockpings", alice), pinged(beat(alice, 1)))
		if !b.near(p.At) {
			b.Errorf("ping is %v, not the server's clock", p.At)
		}
		p.At = time.Time{}
		want := catalog.Pinged{Inserted: true, Ping: catalog.Ping{
			Process: alice, Local: beat(alice, 1).Local, Seq: 1, HasSeq: true,
			Takeover: takeover, Interval: 30 * time.Second,
		}}
		assert.Equal(b, p, want, "ping\nwant %+[2]v\ngot  %+[1]v")
	}},
	{"Next_WritesItsNumberAndRenewsAll", func(b *bench) {
		b.ping(alice)
		next := beat(alice, 7)
		next.Local = next.Local.Add(time.Second)
		next.Takeover, next.Interval = time.Minute, time.Second
		p, err := b.Catalog.Ping(b.ctx, next)
		if err != nil || p.Inserted || p.Seq != 7 || p.Takeover != time.Minute ||
			p.Interval != time.Second {
			b.Fatalf("ping: %+v, %v", p, err)
		}
		b.wantDocument(b.document("lockpings", alice), pinged(next))
	}},
	{"OverAnyDocument", func(b *bench) { // A12, F17, F18, H2
		mine := beat("", 0).Local
		seq := func(v any) bson.D { return bson.D{field("seq", v)} }
		local := func(v any) bson.D { return bson.D{field("seq", int64(1)), field("local", v)} }
		mark := func(v any) bson.D { return bson.D{field("seq", int64(1)), field("condemned", v)} }
		type stored struct {
			fields bson.D
			want   error // nil if the ping replaces the document
			found  int64 // seq in the ping of the twin
		}
		list := []stored{{bson.D{}, catalog.ErrTwin, 0},
			{seq(int64(math.MaxInt64)), catalog.ErrTwin, math.MaxInt64}}
		for _, v := range []any{int32(8), int64(8), 8.0, -1.0} {
			list = append(list, stored{seq(v), nil, 0})
		}
		for _, v := range []any{"x", nil, 9.5, bson.A{int64(0)}, bson.D{field("0", int64(0))}, true} {
			list = append(list, stored{seq(v), catalog.ErrMalformed, 0})
		}
		for _, v := range []any{nil, "x", mine.UnixMilli(), bson.A{mine}, bson.D{field("0", mine)}} {
			list = append(list, stored{local(v), catalog.ErrTwin, 1})
		}
		for _, v := range []any{true, nil, "yes", bson.D{}} {
			list = append(list, stored{mark(v), catalog.ErrCondemned, 0})
		}
		for i, c := range list {
			next := beat(label(i), 9)
			if len(c.fields) > 1 {
				next.Mine = []time.Time{mine}
			}
			doc := append(bson.D{field("_id", next.Process), field("ping", bson.DateTime(5)),
				field("x", "y")}, c.fields...)
			b.insert("lockpings", doc)
			before := b.document("lockpings", next.Process)
			p, err := b.Catalog.Ping(b.ctx, next)
			switch {
			case c.want == nil && err == nil && !p.Inserted:
				b.wantDocument(b.document("lockpings", next.Process), with(pinged(next), field("x", "y")))
				continue
			case errors.Is(c.want, catalog.ErrTwin):
				b.wantTwin(err, next, c.found)
			case errors.Is(c.want, catalog.ErrMalformed):
				b.wantMalformed(err, "lockpings", next.Process, "seq")
			default:
				b.wantErr(err, c.want)
			}
			if !slices.Equal(before, b.document("lockpings", next.Process)) {
				b.Errorf("%v was touched", doc)
			}
		}
	}},
	{"AfterRemoval_IsInserted", func(b *bench) { // F12
		b.ping(alice)
		b.ping(alice)
		assert.Must(b, On(b.Catalog).RemovePing(b.ctx, alice))
		p, err := b.Catalog.Ping(b.ctx, beat(alice, 3))
		if err != nil || !p.Inserted || p.Seq != 3 {
			b.Errorf("want 3, inserted; got %+v, %v", p, err)
		}
	}},
	{"CarriedOutLate_TouchesNothing", func(b *bench) { // D1, I7
		for range 5 {
			b.ping(alice)
		}
		for n := range int64(5) {
			b.wantUntouched("lockpings", alice, func() {
				late := beat(alice, n)
				late.Local = late.Local.Add(-time.Minute)
				_, err := b.Catalog.Ping(b.ctx, late)
				b.wantTwin(err, late, 5)
			})
		}
		if p := b.ping(alice); p.Seq != 6 {
			b.Errorf("next ping: %+v", p)
		}
	}},
	{"CarriedOutTwice_IsAcknowledged", func(b *bench) { // D14
		b.ping(alice)
		first := b.ping(alice)
		b.wantUntouched("lockpings", alice, func() {
			again, err := b.Catalog.Ping(b.ctx, beat(alice, 2))
			if err != nil || again.Ping != first || again.Inserted {
				b.Errorf("want %+v, got %+v, %v", first, again, err)
			}
		})
	}},
	{"TwinCameFirst_IsErrTwin", func(b *bench) { // A12, H2
		b.ping(alice)
		b.ping(alice)
		b.wantUntouched("lockpings", alice, func() {
			twin := beat(alice, 2)
			twin.Local = twin.Local.Add(time.Millisecond)
			_, err := b.Catalog.Ping(b.ctx, twin)
			b.wantTwin(err, twin, 2)
		})
	}},
	{"OverATwinsSmallerSeq_IsErrTwin", func(b *bench) { // A12, H2
		b.ping(alice)
		twin := beat(alice, 2)
		twin.Local = twin.Local.Add(time.Millisecond)
		assert.Value(b.Catalog.Ping(b.ctx, twin))(b)
		b.wantUntouched("lockpings", alice, func() {
			old := beat(alice, 7)
			old.Mine = []time.Time{old.Local, old.Local.Add(time.Hour)}
			_, err := b.Catalog.Ping(b.ctx, old)
			b.wantTwin(err, old, 2)
		})
	}},
	{"OverOneOfMine_IsAcknowledged", func(b *bench) {
		for i, place := range []int{0, 1, 63} {
			process, later := label(i), beat(label(i), 70)
			for n := range 64 {
				later.Mine = append(later.Mine, later.Local.Add(time.Duration(n)*time.Second))
			}
			before := beat(process, 5)
			before.Local = later.Mine[place].Add(999 * time.Microsecond) // stored as milliseconds
			assert.Value(b.Catalog.Ping(b.ctx, before))(b)
			if p, err := b.Catalog.Ping(b.ctx, later); err != nil || p.Inserted || p.Seq != 70 {
				b.Errorf("over ping %d of Mine: %+v, %v", place, p, err)
			}
		}
		one := beat("removed", 2) // without a document the ping is inserted, with its own time
		one.Mine = []time.Time{one.Local.Add(-time.Second)}
		if p, err := b.Catalog.Ping(b.ctx, one); err != nil || !p.Inserted {
			b.Errorf("without a document: %+v, %v", p, err)
		}
		b.wantDocument(b.document("lockpings", "removed"), pinged(one))
	}},
	{"Remove_TakesTheDocument", func(b *bench) {
		b.ping(alice)
		b.ping(bob)
		for range 2 { // the removal of a missing document is not an error
			assert.Must(b, On(b.Catalog).RemovePing(b.ctx, alice))
		}
		if raw := b.document("lockpings", alice); raw != nil {
			b.Errorf("still there: %v", raw)
		}
		if b.document("lockpings", bob) == nil {
			b.Error("another process's ping was deleted")
		}
	}},
	{"Remove_OfCondemned_LeavesIt", func(b *bench) {
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, nil, catalog.Condemnation{By: bob}))
		b.wantUntouched("lockpings", alice, func() {
			assert.NoErr(b, On(b.Catalog).RemovePing(b.ctx, alice))
		})
	}},
}

var condemnCases = []testCase{
	{"AsWatched_MarksAndKeepsTheRest", func(b *bench) {
		p := b.ping(alice)
		how := catalog.Condemnation{By: bob, Evidence: "$silent.for 15m"}
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, &p, how))
		b.wantDocument(b.document("lockpings", alice), with(pinged(beat(alice, 1)),
			field("condemned", bson.D{
				field("by", bob), field("at", serverDate), field("evidence", how.Evidence),
			})))
		b.wantUntouched("lockpings", alice, func() {
			_, err := b.Catalog.Ping(b.ctx, b.next(alice))
			b.wantErr(err, catalog.ErrCondemned)
			var c *catalog.CondemnedError
			if !errors.As(err, &c) || c.Process != alice || c.Condemnation.By != bob ||
				c.Condemnation.Evidence != how.Evidence || c.Condemnation.At.IsZero() {
				b.Errorf("facts: %+v", c)
			}
		})
	}},
	{"NoneThere_InsertsOneWithPing", func(b *bench) {
		how := catalog.Condemnation{By: bob, Evidence: "no ping"}
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, nil, how))
		b.wantDocument(b.document("lockpings", alice), bson.D{
			field("_id", alice), field("ping", serverDate), field("condemned", bson.D{
				field("by", bob), field("at", serverDate), field("evidence", "no ping"),
			}),
		})
		_, err := b.Catalog.Ping(b.ctx, b.next(alice))
		b.wantErr(err, catalog.ErrCondemned)
	}},
	{"NotAsWatched_MatchesNothing", func(b *bench) {
		p := b.ping(alice)
		condemn := func(id string, watched *catalog.Ping) {
			b.Helper()
			b.wantUntouched("lockpings", id, func() {
				err := On(b.Catalog).Condemn(b.ctx, id, watched, catalog.Condemnation{By: "third"})
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
		condemn(alice, nil) // a document appeared
		b.ping(alice)
		condemn(alice, &p) // alice has pinged since
		second := b.ping(alice)
		assert.Must(b, On(b.Catalog).RemovePing(b.ctx, alice))
		condemn(alice, &second) // the ping was removed
		p = b.ping(bob)
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, bob, &p, catalog.Condemnation{By: alice}))
		condemn(bob, &p) // bob is condemned
		condemn(bob, nil)
	}},
	{"SeqOfAnyNumericType_IsWatched", func(b *bench) {
		for i, seq := range []any{int32(4), int64(4), 4.0} {
			process := label(i)
			b.insert("lockpings", bson.D{field("_id", process), field("ping", bson.DateTime(5)),
				field("seq", seq)})
			b.acquire(request(process, process))
			watched := b.snapshot(process).Ping
			if err := On(b.Catalog).Condemn(b.ctx, process, watched, catalog.Condemnation{}); err != nil {
				b.Errorf("seq %T: %v", seq, err)
			}
		}
	}},
}

var choreCases = []testCase{
	{"Prune_TakesOldAndLeavesYoungHoldersAndWaiters", func(b *bench) {
		old := bson.NewDateTimeFromTime(b.ago(100 * time.Hour))
		young := bson.NewDateTimeFromTime(b.ago(time.Hour))
		plant := func(id any, ping any, more ...bson.E) {
			b.insert("lockpings", append(bson.D{field("_id", id), field("ping", ping)}, more...))
		}
		kept := []string{"young", "holder", "text", "null", "listed", "listed without ts"}
		for _, one := range append(b.readers("shared", 3), b.queued("waited", 6)[3:]...) {
			plant(one.Process, old)
			kept = append(kept, one.Process)
		}
		for i := range 30 {
			plant(label(i), old)
		}
		plant("young", young)
		for _, id := range []string{"holder", "last holder", "listed", "listed without ts"} {
			plant(id, old)
		}
		plant("condemned", old, field("condemned", bson.D{field("by", bob)}))
		plant("text", "2001-01-01")
		plant("null", nil)
		plant(int32(7), old)
		b.insert("locks", held("held", "holder"))
		b.insert("locks", append(free("free"), field("process", "last holder")))
		b.insert("locks", append(free("malformed"), field("waiters", bson.A{
			plantedWaiter(request("x", "listed")),
			without(plantedWaiter(request("x", "listed without ts")), "ts"),
		})))
		n, err := b.prune(96 * time.Hour)
		if err != nil || n != 32 { // the last holder of a free lock needs no ping
			b.Fatalf("want 32, got %d, %v", n, err)
		}
		for _, id := range kept {
			if b.document("lockpings", id) == nil {
				b.Errorf("%q was deleted", id)
			}
		}
		if n, err := b.prune(96 * time.Hour); err != nil || n != 0 {
			b.Errorf("again: want 0, got %d, %v", n, err)
		}
	}},
	{"Prune_PingedOrRemovedSinceItWasRead_TouchesNothing", func(b *bench) {
		plant := func(process string, at time.Time) {
			b.insert("lockpings", bson.D{field("_id", process), field("ping", at),
				field("pingMS", int64(30_000)), field("seq", "odd")})
		}
		at := b.ago(100 * time.Hour)
		for _, process := range []string{alice, bob, "gone"} {
			plant(process, at)
		}
		old := assert.Value(b.Catalog.OldPings(b.ctx, b.ago(96*time.Hour)))(b)
		if len(old) != 3 || old[0].Interval != 30*time.Second || !old[0].At.Equal(at) {
			b.Fatalf("read %+v, want three of %v", old, at)
		}
		assert.Must(b, b.Delete(b.ctx, "lockpings", "gone"))
		assert.Must(b, b.Delete(b.ctx, "lockpings", alice))
		plant(alice, at.Add(time.Millisecond)) // old, but newer than the ping that was read
		if n, err := b.Catalog.Prune(b.ctx, old); err != nil || n != 1 {
			b.Errorf("want 1, got %d, %v", n, err)
		}
		if b.document("lockpings", alice) == nil || b.document("lockpings", bob) != nil {
			b.Error("the wrong ping was deleted")
		}
	}},
	{"PrepareTwice_IsNoError", func(b *bench) { // J11
		for range 2 {
			if warnings, err := b.Catalog.Prepare(b.ctx); err != nil || len(warnings) > 0 {
				b.Errorf("%q, %v", warnings, err)
			}
		}
		b.acquire(request("balancer", alice))
	}},
	{"Hello_NamesTheServer", func(b *bench) {
		s, err := b.Catalog.Hello(b.ctx)
		if err != nil || s.Kind == "" || s.Version == "" {
			b.Errorf("%+v, %v", s, err)
		}
		if s.Kind != catalog.Mongos && s.Time.IsZero() {
			b.Error("no clock")
		}
	}},
}

func (b *bench) prune(d time.Duration) (int, error) {
	return pruneOld(b.ctx, b.Catalog, b.ago(d))
}

func pruneOld(ctx context.Context, c catalog.Catalog, before time.Time) (int, error) {
	old, err := c.OldPings(ctx, before)
	if err != nil {
		return 0, err
	}
	return c.Prune(ctx, old)
}
