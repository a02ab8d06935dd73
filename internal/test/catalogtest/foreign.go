package catalogtest

import (
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// The documents in this file have the form that mongos 1.8 to 3.0 and the lock manager of a config
// server 4.4 write.

var historicalTS = must(bson.ObjectIDFromHex("4d41c0b2cc1d2ad1a7dd6a5c"))

func must(id bson.ObjectID, err error) bson.ObjectID {
	if err != nil {
		panic(err)
	}
	return id
}

type historical struct {
	name string
	held bson.D // lock document while the lock is held
	ping bson.D // ping document of the holder
}

func generations() []historical {
	const process = "tp02.example.net:27017:1296156849:1804289383"
	when := bson.DateTime(1_296_157_002_000)
	mongos := func(state any) bson.D {
		return bson.D{
			field("_id", "balancer"), field("process", process), field("state", state),
			field("ts", historicalTS), field("when", when),
			field("who", process+":Balancer:846930886"), field("why", "doing balance round"),
		}
	}
	ping := bson.D{field("_id", process), field("ping", when)}
	return []historical{
		{"Mongos18_State1", mongos(int32(1)), ping},
		{"Mongos20_State2", mongos(int32(2)), ping},
		{"Mongos26_StateIsDouble", mongos(2.0), ping},
		{"Mongos30_StateIsLong", mongos(int64(2)), ping},
		{"ConfigServer44", bson.D{
			field("_id", "balancer"), field("state", int32(2)), field("process", "ConfigServer"),
			field("ts", historicalTS), field("when", when), field("who", "ConfigServer:conn2"),
			field("why", "createDatabase"),
		}, bson.D{field("_id", "ConfigServer"), field("ping", when)}},
		{"ConfigServer44_OverOurFields", bson.D{
			field("_id", "balancer"), field("state", int32(2)), field("process", "ConfigServer"),
			field("ts", historicalTS), field("when", when), field("who", "ConfigServer:conn2"),
			field("why", "createDatabase"), field("fence", int64(12)),
			field("takeoverMS", int64(900_000)), field("rev", int64(33)), field("waiters", bson.A{}),
		}, bson.D{field("_id", "ConfigServer"), field("ping", when)}},
		{"Mongos18_WithoutWho", without(mongos(int32(1)), "who", "why", "when"), ping},
	}
}

// foreignCases apply transitions to documents that another lock manager has written.
var foreignCases = func() []testCase {
	var cases []testCase
	for _, g := range generations() {
		doc := with(g.held[1:], field("fence", planted))
		cases = append(cases, lifeCases([]life{
			{g.name + "_IsTakenOver", "a1:held e99 a1 -99:no e99:no", "x1 |", doc},
			{g.name + "_IsWaitedFor", "p4/2:limit x2 s3 -99 -2", "s3 |", doc},
			{g.name + "_ReleasedIsAcquired", "a1 -1 a2", "x2 |", with(doc, field("state", int32(0)))},
		})...)
		held := func(b *bench) { foreignHeld(b, g) }
		cases = append(cases, testCase{g.name + "_IsValidAndNotFree", held})
	}
	return append(cases, testCase{"Mongos2011_HeldWithoutTS_IsMalformedUntilBroken", foreign2011})
}()

func foreignHeld(b *bench, g historical) { // F19
	b.insert("locks", g.held)
	b.insert("lockpings", g.ping)
	b.wantUntouched("locks", "balancer", func() {
		_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
		b.wantErr(err, catalog.ErrNotFree)
	})
	snapshot := b.snapshot("balancer")
	if snapshot.Lock == nil || !snapshot.Lock.Held || snapshot.Lock.TS != historicalTS {
		b.Fatalf("lock: %+v, %v", snapshot.Lock, snapshot.LockErr)
	}
	assert.Equal(b, snapshot.Lock.Takeover, 0,
		"takeover time %v, want %v")
	if snapshot.Ping == nil || snapshot.Ping.HasSeq || snapshot.Ping.At.UnixMilli() != 1_296_157_002_000 {
		b.Fatalf("ping: %+v, %v", snapshot.Ping, snapshot.PingErr)
	}
	// Condemn returns ErrNoMatch for a foreign process, because that process would ignore the
	// condemnation.
	b.wantUntouched("lockpings", snapshot.Ping.Process, func() {
		how := catalog.Condemnation{By: alice}
		b.wantErr(On(b.Catalog).Condemn(b.ctx, snapshot.Ping.Process, snapshot.Ping, how), catalog.ErrNoMatch)
		b.wantErr(On(b.Catalog).Condemn(b.ctx, snapshot.Ping.Process, nil, how), catalog.ErrNoMatch)
	})
}

func foreign2011(b *bench) { // F19
	b.insert("locks", bson.D{
		field("_id", "balancer"), field("state", int32(1)), field("who", ""),
	})
	snapshot := b.snapshot("balancer")
	if snapshot.LockErr == nil || snapshot.LockErr.Field != "ts" {
		b.Fatalf("want malformed ts, got %+v", snapshot)
	}
	_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
	b.wantErr(err, catalog.ErrNotFree)
	assert.Value(On(b.Catalog).Break(b.ctx, catalog.Session{Name: "balancer"}, 0, "no ts"))(b)
	if l := b.acquire(request("balancer", alice)); l.Fence != 2 {
		b.Errorf("fence: want 2, got %d", l.Fence)
	}
}

// damagedCases test the release of a lock whose document an operator or a newer version of this
// module has damaged. Only a session that holds the lock alone, without waiters, can free the lock.
var damagedCases = []testCase{
	{"HeldAlone_ReleaseFrees", func(b *bench) {
		for i, damage := range []bson.E{
			field("rev", "x"), field("rev", nil), field("rev", bson.A{int64(1)}), field("rev", int64(-3)),
			field("rev", int64(math.MaxInt64)), field("rev", 7.0), field("rev", 7.5),
		} {
			g := request(label(i), alice)
			b.acquire(g)
			b.rewrite(g.Name, damage)
			next := request(g.Name, bob)
			assert.Must(b, b.release(g.Session), fmt.Sprint("release with ", damage))
			assert.Must(b, assert.Err(On(b.Catalog).Enter(b.ctx, next, catalog.Try)), "enter")
			assert.Must(b, b.release(next.Session), "release")
		}
	}},
	{"WithOthers_IsUntouched", func(b *bench) {
		for i, damage := range []bson.E{
			field("mode", "intent"), field("mode", nil), field("mode", int32(7)), field("rev", 7.0),
			field("rev", "x"), field("limit", "three"), field("fence", 7.5), field("sharers", int32(5)),
			field("waiters", bson.A{int32(5)}),
		} {
			for _, g := range [][]catalog.Request{
				b.permits(label(i), 2, 2), b.queued(label(i)+" waited", 3),
			} {
				b.rewrite(g[0].Name, damage)
				if _, err := b.Catalog.Read(b.ctx, g[0].Name); err == nil {
					continue // the damage does not matter to an exclusive holder
				}
				b.wantUntouched("locks", g[0].Name, func() {
					for _, one := range g {
						b.wantErr(b.release(one.Session), catalog.ErrMalformed)
					}
				})
			}
		}
	}},
	{"WithUnknownHolders_IsNotFreed", func(b *bench) {
		for i, damage := range [][]bson.E{
			{field("mode", "shared")}, {field("mode", "permit"), field("sharers", bson.A{})},
		} {
			g := request(label(i), alice)
			b.acquire(g)
			b.rewrite(g.Name, damage...)
			b.wantUntouched("locks", g.Name, func() {
				b.wantErr(b.release(g.Session), catalog.ErrMalformed)
			})
		}
	}},
	{"SessionNotInTheDocument_IsNoMatch", func(b *bench) {
		g := request("a", alice)
		b.acquire(g)
		b.rewrite("a", field("fence", "x"))
		b.wantUntouched("locks", "a", func() {
			_, err := On(b.Catalog).Leave(b.ctx, request("a", alice).Session)
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
}
