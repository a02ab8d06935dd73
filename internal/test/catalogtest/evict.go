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
	{"NotAsWatched_TouchesNothing", func(b *bench) {
		watched := HolderOf(b.acquire(request("balancer", alice)))
		otherTS, otherProcess, noProcess, noTS := watched, watched, watched, watched
		otherTS.TS = bson.NewObjectID()
		otherProcess.Process = bob
		noProcess.Process = ""
		noTS.TS = bson.NilObjectID
		for _, from := range []catalog.Holder{otherTS, otherProcess, noProcess, noTS} {
			b.notEvicted(from)
		}
	}},
	{"ReleasedMeanwhile_TouchesNothing", func(b *bench) {
		g := request("balancer", alice)
		watched := b.acquire(g)
		assert.Must(b, b.release(g.Session))
		b.notEvicted(HolderOf(watched))
	}},
	{"DeletedMeanwhile_CreatesNothing", func(b *bench) {
		watched := b.acquire(request("balancer", alice))
		assert.Must(b, b.Delete(b.ctx, "locks", "balancer"))
		_, err := On(b.Catalog).Evict(b.ctx, HolderOf(watched), "silent")
		b.wantErr(err, catalog.ErrNoMatch)
		if raw := b.document("locks", "balancer"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"AgainAfterTheNextAcquisition_TouchesNothing", func(b *bench) {
		watched := HolderOf(b.acquire(request("balancer", alice)))
		assert.Value(On(b.Catalog).TakeOver(b.ctx, request("balancer", bob), watched))(b)
		b.notEvicted(watched)
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
	{"WithoutTS_IsNeverMatched", func(b *bench) { // F3
		for name, doc := range map[string]bson.D{
			"missing": without(held("missing", alice), "ts"),
			"null":    with(held("null", alice), field("ts", nil)),
		} {
			b.insert("locks", doc)
			from := catalog.Holder{Session: catalog.Session{Name: name}, Process: alice}
			b.wantUntouched("locks", name, func() {
				_, err := On(b.Catalog).Evict(b.ctx, from, "silent")
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
			_, err := On(b.Catalog).Evict(b.ctx, catalog.Holder{Session: s, Process: alice}, "silent")
			b.wantMalformed(err, "locks", "balancer", "ts")
			b.wantErr(b.release(s), catalog.ErrNoMatch)
		})
	}},
	{"StaleSharers_AreNotInTheWay", func(b *bench) {
		s := b.readers("balancer", 2)
		b.rewrite("balancer", field("state", int32(2)), field("ts", historicalTS),
			field("process", "ConfigServer"))
		g := request("balancer", bob)
		from := catalog.Holder{Session: catalog.Session{Name: "balancer", TS: historicalTS}}
		from.Process = "ConfigServer"
		l, err := On(b.Catalog).TakeOver(b.ctx, g, from)
		if err != nil || l.TS != g.TS || l.Mode != catalog.Exclusive || len(l.Holders()) != 1 {
			b.Errorf("take over: %+v, %v", l, err)
		}
		b.wantHeld(s[0].Process, nil)
	}},
}

// notEvicted checks that an eviction from the lock "balancer" returns ErrNoMatch and does not
// change the document.
func (b *bench) notEvicted(from catalog.Holder) {
	b.Helper()
	b.wantUntouched("locks", "balancer", func() {
		_, err := On(b.Catalog).Evict(b.ctx, from, "silent")
		b.wantErr(err, catalog.ErrNoMatch)
	})
}
