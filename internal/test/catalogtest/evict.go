package catalogtest

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// evictCases test evictions of a dead holder without waiters, and the next acquisitions.
var evictCases = []testCase{
	{"AsWatched_TheNextAcquisitionWritesTheWholeDocument", func(b *bench) {
		watched := b.acquire(request("balancer", alice))
		g := request("balancer", bob)
		l, err := On(b.Catalog).TakeOver(b.ctx, g, HolderOf(watched))
		if err != nil || l.TS != g.TS || l.Fence != 2 || !l.Held || l.Process != bob {
			b.Fatalf("take over: %+v, %v", l, err)
		}
		b.wantDocument(b.document("locks", "balancer"), acquired(g, 2, 3))
	}},
	{"ForeignHolder_KeepsForeignFields", func(b *bench) {
		doc := append(held("balancer", "ConfigServer"), field("x", 1.5))
		doc[1].Value = int32(2)
		b.insert("locks", doc)
		g := request("balancer", bob)
		assert.Value(On(b.Catalog).TakeOver(b.ctx, g, HolderOf(*b.look("balancer").Lock)))(b)
		b.wantDocument(b.document("locks", "balancer"), with(acquired(g, 1, 2), field("x", 1.5)))
	}},
	{"HolderWithoutProcess_IsEvicted", func(b *bench) { // F5
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
			if _, err := On(b.Catalog).TakeOver(b.ctx, g, HolderOf(*l)); err != nil {
				b.Errorf("%s: %v", name, err)
			}
			b.wantDocument(b.document("locks", name), acquired(g, 1, 2))
		}
	}},
	{"HexStringTS_IsNeverMatched", func(b *bench) { // F4
		doc := held("balancer", alice)
		ts := doc[3].Value.(bson.ObjectID)
		b.insert("locks", with(doc, field("ts", ts.Hex())))
		s := catalog.Session{Name: "balancer", TS: ts}
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Evict(b.ctx, catalog.Holder{Session: s, Process: alice}, "silent")
			b.wantMalformed(err, "locks", "balancer", "ts")
			b.wantErr(b.release(s), catalog.ErrNoMatch)
		})
	}},
}
