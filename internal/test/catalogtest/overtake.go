package catalogtest

import (
	"reflect"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

var overtakeCases = []testCase{
	{"AsWatched_WritesTheWholeDocument", func(b *bench) {
		watched := b.acquire(request("balancer", alice))
		g := request("balancer", bob)
		l, err := On(b.Catalog).Overtake(b.ctx, g, HolderOf(watched))
		if err != nil || l.TS != g.TS || l.Fence != 2 || !l.Held || l.Process != bob {
			b.Fatalf("overtake: %+v, %v", l, err)
		}
		b.wantDocument(b.document("locks", "balancer"), acquired(g, 2, 2))
	}},
	{"ForeignHolder_KeepsForeignFields", func(b *bench) {
		doc := append(held("balancer", "ConfigServer"), field("x", 1.5))
		doc[1].Value = int32(2)
		b.insert("locks", doc)
		g := request("balancer", bob)
		assert.Value(On(b.Catalog).Overtake(b.ctx, g, HolderOf(*b.look("balancer").Lock)))(b)
		b.wantDocument(b.document("locks", "balancer"), with(acquired(g, 1, 1), field("x", 1.5)))
	}},
	{"NotAsWatched_TouchesNothing", func(b *bench) {
		watched := HolderOf(b.acquire(request("balancer", alice)))
		otherTS, otherProcess, noProcess, noTS := watched, watched, watched, watched
		otherTS.TS = bson.NewObjectID()
		otherProcess.Process = bob
		noProcess.Process = ""
		noTS.TS = bson.NilObjectID
		for _, from := range []catalog.Holder{otherTS, otherProcess, noProcess, noTS} {
			b.wantUntouched("locks", "balancer", func() {
				_, err := On(b.Catalog).Overtake(b.ctx, request("balancer", bob), from)
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
	}},
	{"ReleasedMeanwhile_TouchesNothing", func(b *bench) {
		g := request("balancer", alice)
		watched := b.acquire(g)
		assert.Must(b, b.release(g.Session))
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Overtake(b.ctx, request("balancer", bob), HolderOf(watched))
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"DeletedMeanwhile_CreatesNothing", func(b *bench) {
		watched := b.acquire(request("balancer", alice))
		assert.Must(b, b.Delete(b.ctx, "locks", "balancer"))
		_, err := On(b.Catalog).Overtake(b.ctx, request("balancer", bob), HolderOf(watched))
		b.wantErr(err, catalog.ErrNoMatch)
		if raw := b.document("locks", "balancer"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"AgainByTheFormerHolder_TouchesNothing", func(b *bench) {
		watched := b.acquire(request("balancer", alice))
		assert.Value(On(b.Catalog).Overtake(b.ctx, request("balancer", bob), HolderOf(watched)))(b)
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Overtake(b.ctx, request("balancer", alice), HolderOf(watched))
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"HolderWithoutProcess_IsOvertaken", func(b *bench) { // F5
		for name, doc := range map[string]bson.D{
			"missing": without(held("missing", ""), "process"),
			"null":    with(held("null", ""), field("process", nil)),
			"empty":   held("empty", ""),
		} {
			b.insert("locks", doc)
			l := b.look(name).Lock
			if l == nil || l.Process != "" {
				b.Fatalf("%s: look says %+v", name, l)
			}
			g := request(name, bob)
			if _, err := On(b.Catalog).Overtake(b.ctx, g, HolderOf(*l)); err != nil {
				b.Errorf("%s: %v", name, err)
			}
			b.wantDocument(b.document("locks", name), acquired(g, 1, 1))
		}
	}},
	{"WithoutTS_IsNeverMatched", func(b *bench) { // F3
		for name, doc := range map[string]bson.D{
			"missing": without(held("missing", alice), "ts"),
			"null":    with(held("null", alice), field("ts", nil)),
		} {
			b.insert("locks", doc)
			from := catalog.Holder{Session: catalog.Session{Name: name}, Process: alice}
			b.wantUntouched("locks", name, func() {
				_, err := On(b.Catalog).Overtake(b.ctx, request(name, bob), from)
				b.wantMalformed(err, "locks", name, "ts")
			})
		}
	}},
	{"HexStringTS_IsNeverMatched", func(b *bench) { // F4
		doc := held("balancer", alice)
		ts := doc[3].Value.(bson.ObjectID)
		b.insert("locks", with(doc, field("ts", ts.Hex())))
		s := catalog.Session{Name: "balancer", TS: ts}
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Overtake(b.ctx, request("balancer", bob),
				catalog.Holder{Session: s, Process: alice})
			b.wantMalformed(err, "locks", "balancer", "ts")
			b.wantErr(b.release(s), catalog.ErrNoMatch)
		})
	}},
	{"WhereSomebodyWaitsOrShares_TouchesNothing", func(b *bench) {
		g := b.party("waited for", 2)
		b.enter(g[0])
		b.enter(g[1])
		s := b.party("shared", 2)
		for i := range s {
			s[i].Mode = catalog.Shared
			b.enter(s[i])
		}
		for _, first := range []catalog.Request{g[0], s[0], s[1]} {
			b.wantUntouched("locks", first.Name, func() {
				from := catalog.Holder{Session: first.Session, Process: first.Process}
				_, err := On(b.Catalog).Overtake(b.ctx, request(first.Name, bob), from)
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
	}},
	{"StaleSharers_AreNotInTheWay", func(b *bench) {
		s := b.readers("balancer", 2)
		b.rewrite("balancer", field("state", int32(2)), field("ts", historicalTS),
			field("process", "ConfigServer"))
		g := request("balancer", bob)
		from := catalog.Holder{Session: catalog.Session{Name: "balancer", TS: historicalTS}}
		from.Process = "ConfigServer"
		l, err := On(b.Catalog).Overtake(b.ctx, g, from)
		if err != nil || l.TS != g.TS || l.Mode != catalog.Exclusive || len(l.Holders()) != 1 {
			b.Errorf("overtake: %+v, %v", l, err)
		}
		b.wantHeld(s[0].Process, nil)
	}},
}

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
	{"FreeLock_IsFree", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		assert.Must(b, b.release(g.Session))
		if look := b.look("balancer"); look.Lock == nil || look.Lock.Held || look.Lock.TS != g.TS {
			b.Errorf("want a free lock, got %+v", look)
		}
	}},
	{"MalformedLock_IsInTheResult", func(b *bench) { // F1 to F5
		for i, c := range []bson.E{
			field("state", "1"), field("ts", nil), field("ts", bson.DateTime(1)),
			field("process", int32(7)), field("fence", "x"), field("fence", 2.0),
		} {
			name := label(i)
			b.insert("locks", with(held(name, alice), c))
			look := b.look(name)
			if look.Lock != nil || look.LockErr == nil {
				b.Errorf("%v: want LockErr, got %+v", c, look)
				continue
			}
			b.wantMalformed(look.LockErr, "locks", name, c.Key)
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
