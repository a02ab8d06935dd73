package catalogtest

import (
	"fmt"
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// damagedCases try to break: whoever stands in a document that a hand or a newer version has
// damaged can leave it, and frees only what nobody else stands in.
var damagedCases = []testCase{
	{"WhileShared_ReleaseFreesWhatNobodyElseHolds", func(b *bench) {
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
		g := b.party("a", 3)
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
			g := b.party(name, 2)
			for i := range g {
				g[i].Mode, g[i].Limit = catalog.Permit, 2
				b.enter(g[i])
			}
			b.rewrite(name, field("rev", rev))
			b.leave(g[1].Session)
			// What nobody can count stays, so that no write that is late finds its own number.
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
	{"SessionStandsNowhere_IsNoMatch", func(b *bench) {
		g := request("a", alice)
		b.acquire(g)
		b.rewrite("a", field("fence", "x"))
		b.wantUntouched("locks", "a", func() {
			_, err := On(b.Catalog).Leave(b.ctx, request("a", alice).Session)
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
}

// damagedWhileShared checks what three who share a lock leave behind when they release it one after
// the other, and its document was damaged meanwhile.
func (b *bench) damagedWhileShared(name string, order []int, damage []bson.E) {
	b.Helper()
	g := b.party(name, 3)
	for i := range g {
		g[i].Mode, g[i].Limit = catalog.Permit, 3
		b.enter(g[i])
	}
	b.rewrite(name, damage...)
	stand := map[bson.ObjectID]bool{g[0].TS: true, g[1].TS: true, g[2].TS: true}
	for _, n := range order {
		if err := b.release(g[n].Session); err != nil {
			b.Errorf("%s: %d releases: %v", name, n, err)
		}
		delete(stand, g[n].TS)
		doc := b.document("locks", name)
		state, _ := doc.Lookup("state").AsInt64OK()
		top, _ := doc.Lookup("ts").ObjectIDOK()
		if held := len(stand) > 0; held != (state > 0) || held && !stand[top] {
			b.Errorf("%s: %d released: %d hold it still, and it is %v", name, n, len(stand), doc)
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
