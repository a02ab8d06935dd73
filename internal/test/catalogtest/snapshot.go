package catalogtest

import (
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

var snapshotCases = []testCase{
	{"NoDocument_IsEmpty", func(b *bench) {
		snapshot := b.snapshot("balancer")
		if snapshot.Lock != nil || snapshot.LockErr != nil || snapshot.Ping != nil || snapshot.PingErr != nil {
			b.Errorf("want nothing, got %+v", snapshot)
		}
	}},
	{"HeldWithPing_HasBothAndTheClock", func(b *bench) {
		p := b.ping(alice)
		l := b.acquire(request("balancer", alice))
		snapshot := b.snapshot("balancer")
		if snapshot.Lock == nil || !reflect.DeepEqual(*snapshot.Lock, l) {
			b.Errorf("lock\nwant %+v\ngot  %+v", l, snapshot.Lock)
		}
		if snapshot.Ping == nil || *snapshot.Ping != p {
			b.Errorf("ping\nwant %+v\ngot  %+v", p, snapshot.Ping)
		}
		if snapshot.ServerTime.IsZero() || !b.near(snapshot.ServerTime) {
			b.Errorf("server's clock: %v", snapshot.ServerTime)
		}
	}},
	{"Reading_WritesNothing", func(b *bench) {
		b.ping(alice)
		b.acquire(request("balancer", alice))
		b.wantUntouched("locks", "balancer", func() {
			b.wantUntouched("lockpings", alice, func() {
				b.snapshot("balancer")
				b.snapshot("other")
			})
		})
		if raw := b.document("locks", "other"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"NoPing_IsNil", func(b *bench) { // F14
		b.ping(bob)
		b.acquire(request("balancer", alice))
		snapshot := b.snapshot("balancer")
		if snapshot.Lock == nil || snapshot.Ping != nil || snapshot.PingErr != nil {
			b.Errorf("want a lock without ping, got %+v", snapshot)
		}
	}},
	{"NoProcess_HasNoPing", func(b *bench) { // F5
		b.insert("lockpings", bson.D{field("_id", ""), field("ping", bson.DateTime(5))})
		b.insert("locks", held("balancer", ""))
		if snapshot := b.snapshot("balancer"); snapshot.Lock == nil || snapshot.Ping != nil {
			b.Errorf("want a lock without ping, got %+v", snapshot)
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
			snapshot := b.snapshot(process)
			if snapshot.Lock == nil || snapshot.Ping != nil || snapshot.PingErr == nil {
				b.Errorf("%v: want PingErr, got %+v", c, snapshot)
				continue
			}
			b.wantMalformed(snapshot.PingErr, "lockpings", process, c.Key)
		}
	}},
	{"FieldsWithOurNames_DoNotConflict", func(b *bench) {
		doc := append(held("balancer", alice), field("now", "x"), field("pings", "y"),
			field("lock", bson.D{field("state", int32(0))}), field("ping", int32(1)))
		b.insert("locks", doc)
		p := b.ping(alice)
		snapshot := b.snapshot("balancer")
		if snapshot.Lock == nil || !snapshot.Lock.Held || snapshot.Ping == nil || *snapshot.Ping != p {
			b.Errorf("got %+v", snapshot)
		}
	}},
	{"CondemnedPing_IsReported", func(b *bench) {
		p := b.ping(alice)
		b.acquire(request("balancer", alice))
		how := catalog.Condemnation{By: bob, Evidence: "silent for 15m"}
		assert.Must(b, On(b.Catalog).Condemn(b.ctx, alice, &p, how))
		c := b.snapshot("balancer").Ping.Condemned
		if c == nil || c.By != bob || c.Evidence != how.Evidence || !b.near(c.At) {
			b.Errorf("condemned: %+v", c)
		}
	}},
}
