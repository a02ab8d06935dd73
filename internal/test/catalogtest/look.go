package catalogtest

import (
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

var lookCases = []testCase{
	{"NoDocument_IsEmpty", func(b *bench) {
		look := b.look("balancer")
		if look.Lock != nil || look.LockErr != nil || look.Ping != nil || look.PingErr != nil {
			b.Errorf("want nothing, got %+v", look)
		}
	}},
	{"HeldWithPing_BringsBothAndTheClock", func(b *bench) {
		p := b.ping(alice)
		l := b.acquire(request("balancer", alice))
		look := b.look("balancer")
		if look.Lock == nil || !reflect.DeepEqual(*look.Lock, l) {
			b.Errorf("lock\nwant %+v\ngot  %+v", l, look.Lock)
		}
		if look.Ping == nil || *look.Ping != p {
			b.Errorf("ping\nwant %+v\ngot  %+v", p, look.Ping)
		}
		if look.ServerTime.IsZero() || !b.near(look.ServerTime) {
			b.Errorf("server's clock: %v", look.ServerTime)
		}
	}},
	{"Reading_WritesNothing", func(b *bench) {
		b.ping(alice)
		b.acquire(request("balancer", alice))
		b.wantUntouched("locks", "balancer", func() {
			b.wantUntouched("lockpings", alice, func() {
				b.look("balancer")
				b.look("other")
			})
		})
		if raw := b.document("locks", "other"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"NoPing_IsNil", func(b *bench) { // F14
		b.ping(bob)
		b.acquire(request("balancer", alice))
		look := b.look("balancer")
		if look.Lock == nil || look.Ping != nil || look.PingErr != nil {
			b.Errorf("want a lock without ping, got %+v", look)
		}
	}},
	{"NoProcess_HasNoPing", func(b *bench) { // F5
		b.insert("lockpings", bson.D{field("_id", ""), field("ping", bson.DateTime(5))})
		b.insert("locks", held("balancer", ""))
		if look := b.look("balancer"); look.Lock == nil || look.Ping != nil {
			b.Errorf("want a lock without ping, got %+v", look)
		}
	}},
	{"MalformedPing_IsInTheResult", func(b *bench) { // F15, F17
		for i, c := range []bson.E{
			field("ping", nil), field("ping", "now"), field("ping", 5.0),
			field("ping", bson.Timestamp{T: 7}), field("seq", "x"), field("seq", 1.5),
		} {
			process := label(i)
			b.insert("lockpings", with(
				bson.D{field("_id", process), field("ping", bson.DateTime(5))}, c))
			b.acquire(request(process, process))
			look := b.look(process)
			if look.Lock == nil || look.Ping != nil || look.PingErr == nil {
				b.Errorf("%v: want PingErr, got %+v", c, look)
				continue
			}
			b.wantMalformed(look.PingErr, "lockpings", process, c.Key)
		}
	}},
	{"FieldsNamedAsOurs_AreNotInTheWay", func(b *bench) {
		doc := append(held("balancer", alice), field("now", "x"), field("pings", "y"),
			field("lock", bson.D{field("state", int32(0))}), field("ping", int32(1)))
		b.insert("locks", doc)
		p := b.ping(alice)
		look := b.look("balancer")
		if look.Lock == nil || !look.Lock.Held || look.Ping == nil || *look.Ping != p {
			b.Errorf("got %+v", look)
		}
	}},
	{"CondemnedPing_SaysSo", func(b *bench) {
		p := b.ping(alice)
		b.acquire(request("balancer", alice))
		how := catalog.Condemnation{By: bob, Evidence: "silent for 15m"}
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, &p, how))
		c := b.look("balancer").Ping.Condemned
		if c == nil || c.By != bob || c.Evidence != how.Evidence || !b.near(c.At) {
			b.Errorf("condemned: %+v", c)
		}
	}},
}
