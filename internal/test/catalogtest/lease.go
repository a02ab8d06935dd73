package catalogtest

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

func renewal(r catalog.Request, n int64) catalog.Renewal {
	return catalog.Renewal{
		Session: r.Session, Number: n, Life: 40 * time.Second,
		Local: time.UnixMilli(1_700_000_123_456).UTC(),
	}
}

func (b *bench) renew(r catalog.Renewal) {
	b.Helper()
	assert.Must(b, On(b.Catalog).Renew(b.ctx, r))
}

func (b *bench) wantLease(r catalog.Renewal) {
	b.Helper()
	lease, ok := b.snapshot(r.Name).Lock.LeaseOf(r.TS)
	if !ok || lease.Number != r.Number || lease.Life != r.Life || !lease.Local.Equal(r.Local) ||
		lease.At.Before(r.Local) {
		b.Fatalf("lease is %+v, %v, want %+v and the server's clock", lease, ok, r)
	}
}

var leaseCases = []testCase{
	{"Renew_WritesLeaseAndRevOnly", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		for n := range int64(3) {
			b.renew(renewal(g, n+1))
			b.wantLease(renewal(g, n+1))
		}
		var doc bson.D
		assert.Must(b, bson.Unmarshal(b.document("locks", "balancer"), &doc))
		raw := assert.Value(bson.Marshal(without(doc, "leases")))(b)
		b.wantDocument(raw, acquired(g, 1, 4))
	}},
	{"Lease_OfAForeignHolder_IsIgnored", func(b *bench) {
		g := request("balancer", alice)
		leases := bson.A{int32(5), bson.D{
			field("ts", g.TS), field("ms", int64(40_000)), field("n", int64(3)),
			field("at", bson.DateTime(5)), field("local", bson.DateTime(5)),
		}}
		for state, want := range map[int32]int{1: 1, 2: 0} {
			doc := with(held(string(rune('a'+state)), alice), field("state", state), field("ts", g.TS),
				field("leases", leases))
			b.insert("locks", doc)
			if l := b.snapshot(string(rune('a' + state))).Lock; l == nil || len(l.Leases) != want {
				b.Errorf("state %d: %+v, want %d leases", state, l, want)
			}
		}
	}},
	{"Renew_OfDamagedLeases_BeginsAnew", func(b *bench) {
		for name, leases := range map[string]any{"text": "x", "null": nil, "numbers": bson.A{int32(1)}} {
			g := request(name, alice)
			b.insert("locks", with(held(name, alice), field("ts", g.TS), field("leases", leases)))
			b.renew(renewal(g, 1))
			b.wantLease(renewal(g, 1))
		}
	}},
}

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
	{"Witness_AddsTheRecord", func(b *bench) {
		p := b.ping(alice)
		s := sightBy("$bob.1", p, 5000)
		assert.Must(b, On(b.Catalog).Witness(b.ctx, p, s))
		b.wantDocument(b.document("lockpings", alice), with(pinged(beat(alice, 1)), sightDocument(s)))
		b.acquire(request("balancer", alice))
		if seen := b.snapshot("balancer").Ping; seen == nil || seen.Sight != s {
			b.Errorf("the snapshot has %+v, want %+v", seen, s)
		}
	}},
	{"Witness_TheNextPingRemovesIt", func(b *bench) {
		p := b.ping(alice)
		assert.Must(b, On(b.Catalog).Witness(b.ctx, p, sightBy(bob, p, 5000)))
		b.ping(alice)
		b.wantDocument(b.document("lockpings", alice), pinged(beat(alice, 2)))
	}},
	{"Witness_NotAsWatched_MatchesNothing", func(b *bench) {
		refused := func(p catalog.Ping, by string) {
			b.Helper()
			b.wantUntouched("lockpings", p.Process, func() {
				b.wantErr(On(b.Catalog).Witness(b.ctx, p, sightBy(by, p, 6000)), catalog.ErrNoMatch)
			})
		}
		refused(catalog.Ping{Process: alice, Seq: 1, HasSeq: true}, bob) // there is no document
		old := b.ping(alice)
		p := b.ping(alice)
		refused(old, bob) // alice has pinged since
		first := sightBy(bob, p, 5000)
		assert.Must(b, On(b.Catalog).Witness(b.ctx, p, first))
		refused(p, "third") // another contender wrote a record
		p.Sight = first
		assert.NoErr(b, On(b.Catalog).Witness(b.ctx, p, sightBy("third", p, 6000)))
		p.Sight = sightBy("third", p, 6000)
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, &p, catalog.Condemnation{By: bob}))
		refused(p, bob)
		b.insert("lockpings", bson.D{field("_id", "mongos"), field("ping", bson.DateTime(5))})
		refused(catalog.Ping{Process: "mongos"}, bob)
	}},
}
