package catalogtest

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

func sightBy(by string, p catalog.Ping, at int64) catalog.Sight {
	seen := time.UnixMilli(at).UTC()
	return catalog.Sight{Seq: p.Seq, At: seen, Local: seen.Add(time.Millisecond), By: by}
}

func sightDocument(s catalog.Sight) bson.E {
	return field("sight", bson.D{
		field("seq", s.Seq), field("at", bson.NewDateTimeFromTime(s.At)),
		field("local", bson.NewDateTimeFromTime(s.Local)), field("by", s.By),
	})
}

var sightCases = []testCase{
	{"Witness_LeavesItBesideTheRest", func(b *bench) {
		p := b.ping(alice)
		s := sightBy("$bob.1", p, 5000)
		assert.Must(b, On(b.Catalog).Witness(b.ctx, p, s))
		b.wantDocument(b.document("lockpings", alice), with(pinged(beat(alice, 1)), sightDocument(s)))
		b.acquire(request("balancer", alice))
		if seen := b.look("balancer").Ping; seen == nil || seen.Sight != s {
			b.Errorf("a look shows %+v, want %+v", seen, s)
		}
	}},
	{"Witness_TheNextPingTakesItAway", func(b *bench) {
		p := b.ping(alice)
		assert.Must(b, On(b.Catalog).Witness(b.ctx, p, sightBy(bob, p, 5000)))
		b.ping(alice)
		b.wantDocument(b.document("lockpings", alice), pinged(beat(alice, 2)))
	}},
	{"Witness_PingedMeanwhile_MatchesNothing", func(b *bench) {
		p := b.ping(alice)
		b.ping(alice)
		b.wantUntouched("lockpings", alice, func() {
			b.wantErr(On(b.Catalog).Witness(b.ctx, p, sightBy(bob, p, 5000)), catalog.ErrNoMatch)
		})
	}},
	{"Witness_SecondOne_MatchesNothing_UnlessItSawTheFirst", func(b *bench) {
		p := b.ping(alice)
		first := sightBy(bob, p, 5000)
		assert.Must(b, On(b.Catalog).Witness(b.ctx, p, first))
		b.wantUntouched("lockpings", alice, func() {
			b.wantErr(On(b.Catalog).Witness(b.ctx, p, sightBy("third", p, 6000)), catalog.ErrNoMatch)
		})
		p.Sight = first
		assert.NoErr(b, On(b.Catalog).Witness(b.ctx, p, sightBy("third", p, 6000)))
	}},
	{"Witness_Condemned_MatchesNothing", func(b *bench) {
		p := b.ping(alice)
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, &p, catalog.Condemnation{By: bob}))
		b.wantUntouched("lockpings", alice, func() {
			b.wantErr(On(b.Catalog).Witness(b.ctx, p, sightBy(bob, p, 5000)), catalog.ErrNoMatch)
		})
	}},
	{"Witness_ForeignOrNone_MatchesNothing", func(b *bench) {
		b.insert("lockpings", bson.D{field("_id", "mongos"), field("ping", bson.DateTime(5))})
		b.wantUntouched("lockpings", "mongos", func() {
			p := catalog.Ping{Process: "mongos"}
			b.wantErr(On(b.Catalog).Witness(b.ctx, p, sightBy(bob, p, 5000)), catalog.ErrNoMatch)
		})
		p := catalog.Ping{Process: "nobody", Seq: 1, HasSeq: true}
		b.wantErr(On(b.Catalog).Witness(b.ctx, p, sightBy(bob, p, 5000)), catalog.ErrNoMatch)
		if raw := b.document("lockpings", "nobody"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
}
