package catalogtest

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// The documents of this file are as the generations of mongos and MongoDB's own lock manager wrote
// them.

var historicalTS = must(bson.ObjectIDFromHex("4d41c0b2cc1d2ad1a7dd6a5c"))

func must(id bson.ObjectID, err error) bson.ObjectID {
	if err != nil {
		panic(err)
	}
	return id
}

type historical struct {
	name string
	held bson.D // while somebody holds it
	ping bson.D // of its holder
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

// foreignCases run the whole life of a lock over each historical document.
var foreignCases = func() []testCase {
	var cases []testCase
	for _, g := range generations() {
		cases = append(cases,
			testCase{g.name + "_IsUnderstoodAndNotFree", func(b *bench) { foreignHeld(b, g) }},
			testCase{g.name + "_IsOvertaken", func(b *bench) { foreignOvertaken(b, g) }},
			testCase{g.name + "_ReleasedIsAcquired", func(b *bench) { foreignReleased(b, g) }},
		)
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
	look := b.look("balancer")
	if look.Lock == nil || !look.Lock.Held || look.Lock.TS != historicalTS {
		b.Fatalf("lock: %+v, %v", look.Lock, look.LockErr)
	}
	assert.Equal(b, look.Lock.Takeover, 0,
		"it has recorded no takeover time, and is given %v, want %v")
	if look.Ping == nil || look.Ping.HasSeq || look.Ping.At.UnixMilli() != 1_296_157_002_000 {
		b.Fatalf("ping: %+v, %v", look.Ping, look.PingErr)
	}
	// A foreign process looks at no mark, so it cannot be condemned.
	b.wantUntouched("lockpings", look.Ping.Process, func() {
		how := catalog.Condemnation{By: alice}
		b.wantErr(On(b.Catalog).Condemn(b.ctx, look.Ping.Process, look.Ping, how), catalog.ErrNoMatch)
		b.wantErr(On(b.Catalog).Condemn(b.ctx, look.Ping.Process, nil, how), catalog.ErrNoMatch)
	})
}

func foreignOvertaken(b *bench, g historical) {
	b.insert("locks", g.held)
	from := b.look("balancer").Lock
	mine := request("balancer", alice)
	l, err := On(b.Catalog).Overtake(b.ctx, mine, from.Holder())
	if err != nil || l.Fence != from.Fence+1 {
		b.Fatalf("overtake: %+v, %v", l, err)
	}
	// The foreign holder's release names its own ts, or at least its own process.
	s := from.Session()
	b.wantUntouched("locks", "balancer", func() {
		b.wantErr(b.release(s), catalog.ErrNoMatch)
	})
}

func foreignReleased(b *bench, g historical) {
	b.insert("locks", with(g.held, field("state", int32(0))))
	mine := request("balancer", alice)
	l := b.acquire(mine)
	assert.Must(b, b.release(mine.Session))
	if next := b.acquire(request("balancer", bob)); next.Fence != l.Fence+1 {
		b.Errorf("fence: want %d, got %d", l.Fence+1, next.Fence)
	}
}

func foreign2011(b *bench) { // F19
	b.insert("locks", bson.D{
		field("_id", "balancer"), field("state", int32(1)), field("who", ""),
	})
	look := b.look("balancer")
	if look.LockErr == nil || look.LockErr.Field != "ts" {
		b.Fatalf("want malformed ts, got %+v", look)
	}
	_, err := On(b.Catalog).Acquire(b.ctx, request("balancer", alice))
	b.wantErr(err, catalog.ErrNotFree)
	assert.Value(On(b.Catalog).Break(b.ctx, catalog.Session{Name: "balancer"}, 0, "no ts"))(b)
	if l := b.acquire(request("balancer", alice)); l.Fence != 2 {
		b.Errorf("fence: want 2, got %d", l.Fence)
	}
}
