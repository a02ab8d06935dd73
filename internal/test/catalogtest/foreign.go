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

// damagedCases test lock documents that an operator or a newer version of this module has damaged.
// Each holder and waiter can still leave the lock. The lock becomes free when its last holder
// leaves.
var damagedCases = []testCase{
	{"WhileShared_LastReleaseFreesTheLock", func(b *bench) {
		for i, damage := range [][]bson.E{
			{field("mode", "intent")}, {field("mode", nil)}, {field("mode", int32(7))}, {field("rev", 7.0)},
			{field("rev", "x"), field("mode", "intent")}, {field("limit", "three")}, {field("fence", 7.5)},
			{field("waiters", bson.A{int32(5)})}, {field("fence", nil), field("rev", bson.A{int64(3)})},
		} {
			for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
				b.damagedWhileShared(fmt.Sprint(label(i), order), order, damage)
			}
		}
	}},
	{"WhileWaitedFor_WaiterLeaves_HolderStays", func(b *bench) {
		g := b.requests("a", 3)
		for _, one := range g {
			b.enter(one)
		}
		b.rewrite("a", field("rev", 7.0))
		b.leave(g[1].Session)
		doc := b.document("locks", "a")
		holder, waiter := doc.Lookup("ts").ObjectID(), doc.Lookup("waiters", "0", "ts").ObjectID()
		if doc.Lookup("state").AsInt64() != 1 || holder != g[0].TS || waiter != g[2].TS {
			b.Errorf("after the waiter left: %v", doc)
		}
	}},
	{"RevDamagedWhileShared_RisesOrStays", func(b *bench) {
		for i, rev := range []any{
			7.0, 7.5, int32(-3), int64(math.MaxInt64), "x", math.NaN(), bson.A{int64(3)},
		} {
			if b.storesNo(bson.D{field("rev", rev)}) {
				continue
			}
			name := fmt.Sprint(label(i), "rev")
			g := b.requests(name, 2)
			for i := range g {
				g[i].Mode, g[i].Limit = catalog.Permit, 2
				b.enter(g[i])
			}
			b.rewrite(name, field("rev", rev))
			b.leave(g[1].Session)
			// A release replaces a float rev by a larger integer, so that no delayed write matches the old
			// rev. Any other invalid rev, such as NaN, stays unchanged.
			got := b.document("locks", name).Lookup("rev")
			want, ok := rev.(float64)
			switch n, isInt := got.AsInt64OK(); {
			case ok && want == want && (!isInt || got.Type == bson.TypeDouble || float64(n) <= want):
				b.Errorf("%s: rev is %v after %v", name, got, rev)
			case (!ok || want != want) && got.String() != rawOf(rev).String():
				b.Errorf("%s: rev is %v, want it as it was: %v", name, got, rev)
			}
			b.leave(g[0].Session)
			b.acquire(request(name, alice))
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

func (b *bench) damagedWhileShared(name string, order []int, damage []bson.E) {
	b.Helper()
	g := b.requests(name, 3)
	for i := range g {
		g[i].Mode, g[i].Limit = catalog.Permit, 3
		b.enter(g[i])
	}
	b.rewrite(name, damage...)
	remaining := map[bson.ObjectID]bool{g[0].TS: true, g[1].TS: true, g[2].TS: true}
	for _, n := range order {
		if err := b.release(g[n].Session); err != nil {
			b.Errorf("%s: release %d: %v", name, n, err)
		}
		delete(remaining, g[n].TS)
		doc := b.document("locks", name)
		state, _ := doc.Lookup("state").AsInt64OK()
		top, _ := doc.Lookup("ts").ObjectIDOK()
		if held := len(remaining) > 0; held != (state > 0) || held && !remaining[top] {
			b.Errorf("%s: after release %d: %d holders left: %v", name, n, len(remaining), doc)
		}
	}
}

func rawOf(v any) bson.RawValue {
	t, value, err := bson.MarshalValue(v)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: t, Value: value}
}
