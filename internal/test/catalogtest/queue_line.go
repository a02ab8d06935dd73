package catalogtest

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

func dead(r catalog.Request) catalog.Holder {
	return catalog.Holder{Session: r.Session, Process: r.Process}
}

// nearMillis reports whether n milliseconds are within a minute of the server's clock.
func (b *bench) nearMillis(n int64) bool {
	b.Helper()
	return b.near(time.UnixMilli(n)) && n > planted
}

// try makes r enter the lock in the given mode, and requires that r then holds it.
func (b *bench) try(r catalog.Request, how catalog.EnterMode) catalog.Lock {
	b.Helper()
	l, err := On(b.Catalog).Enter(b.ctx, r, how)
	if _, ok := l.HeldBy(r.TS); err != nil || !ok {
		b.Fatalf("enter: %+v, %v", l, err)
	}
	return l
}

// lineCases test the modes of entry, also with foreign documents.
var lineCases = []testCase{
	// An exclusive request that does not queue takes a free lock with the plain acquisition.
	{"Try_Free_Holds", func(b *bench) {
		name := "x"
		g := b.party(name, 1)[0]
		b.try(g, catalog.Try)
		b.wantDocument(b.document("locks", name), acquired(g, planted+1, 1))
		fresh := request("new "+name, alice)
		b.wantClockFence(b.try(fresh, catalog.Try).Fence)
	}},
	{"Try_Held_IsNotFreeAndLeavesNoWaiter", func(b *bench) {
		g := b.party("balancer", 3)
		b.enter(g[0])
		b.refused(g[1], catalog.Try, catalog.ErrNotFree)
		b.enter(g[2])
		b.refused(g[1], catalog.Try, catalog.ErrNotFree)
	}},
	{"Try_FreeWithWaiters_OvertakesNobody", func(b *bench) {
		g := b.party("balancer", 2)
		b.rewrite("balancer", field("waiters", bson.A{plantedWaiter(g[0])}))
		b.refused(g[1], catalog.Try, catalog.ErrNotFree)
	}},
	{"Try_ReaderBesideReaders_Holds", func(b *bench) {
		g := b.party("balancer", 2)
		for _, one := range g {
			one.Mode = catalog.Shared
			b.try(one, catalog.Try)
		}
	}},
	{"Try_Permits_HoldsUpToTheLimit", func(b *bench) {
		g := b.party("balancer", 3)
		for i, one := range g {
			if one.Mode, one.Limit = catalog.Permit, 2; i < 2 {
				b.try(one, catalog.Try)
				continue
			}
			b.refused(one, catalog.Try, catalog.ErrNotFree)
		}
	}},
	{"Malformed_Queue_IsNamedAndUntouched", func(b *bench) {
		good := plantedWaiter(request("x", bob))
		for i, c := range []struct {
			key   string
			value any
			at    string
		}{
			{"waiters", int32(5), ""}, {"waiters", "x", ""}, {"waiters", good, ""},
			{"waiters", bson.A{int32(5)}, ".0"}, {"waiters", bson.A{good, "x"}, ".1"},
			{"waiters", bson.A{without(good, "ts")}, ".0.ts"},
			{"waiters", bson.A{with(good, field("ts", bson.NilObjectID))}, ".0.ts"},
			{"waiters", bson.A{with(good, field("ts", historicalTS.Hex()))}, ".0.ts"},
			{"waiters", bson.A{good, without(good, "process")}, ".1.process"},
			{"waiters", bson.A{with(good, field("process", ""))}, ".0.process"},
			{"waiters", bson.A{with(good, field("process", int32(5)))}, ".0.process"},
			{"sharers", int32(5), ""}, {"sharers", bson.A{nil}, ".0"},
			{"sharers", bson.A{without(good, "ts")}, ".0.ts"},
			{"sharers", bson.A{without(good, "process")}, ".0.process"},
		} {
			b.malformedQueue(label(i), c.key, c.value, c.key+c.at)
		}
	}},
	{"AbsentQueue_IsEmpty", func(b *bench) {
		for i, none := range []any{nil, bson.A{}} {
			r := request(label(i), alice)
			b.insert("locks", append(free(r.Name), field("fence", planted), field("waiters", none),
				field("sharers", none), field("mode", nil), field("limit", none)))
			b.enter(r)
			b.wantDocument(b.document("locks", r.Name), holding(r, planted+1, 1))
		}
	}},
	{"StaleSharers_CountForNothing", func(b *bench) {
		g := b.party("balancer", 4)
		for i := range 3 {
			g[i].Mode = catalog.Shared
		}
		b.enter(g[0])
		b.enter(g[1])
		foreign := catalog.Holder{
			Session: catalog.Session{Name: "balancer", TS: historicalTS}, Process: "ConfigServer",
		}
		b.rewrite("balancer", field("state", int32(2)), field("ts", foreign.TS),
			field("process", foreign.Process))
		l := b.look("balancer").Lock
		if l == nil || l.Mode != catalog.Exclusive || len(l.Sharers) > 0 || len(l.Holders()) != 1 {
			b.Fatalf("lock: %+v", l)
		}
		b.wantHeld(g[0].Process, nil)
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Leave(b.ctx, g[0].Session)
			b.wantErr(err, catalog.ErrNoMatch)
			_, err = On(b.Catalog).Evict(b.ctx, dead(g[1]), "silent")
			b.wantErr(err, catalog.ErrNoMatch)
		})
		if l := b.enter(g[2]); len(l.Waiters) != 1 {
			b.Errorf("lock: %+v", l)
		}
		b.enter(g[3])
		grants, err := On(b.Catalog).Evict(b.ctx, foreign, "silent")
		granted := grant(g[2], planted+3)
		granted.Evidence = "silent"
		b.wantGrants(grants, err, granted)
		b.wantDocument(b.document("locks", "balancer"), with(holding(g[2], planted+3, 5),
			field("mode", "shared"), field("sharers", bson.A{sharing(g[2], planted+3)}),
			field("evidence", "silent"), waiters(g[3])))
	}},
	{"UnknownFields_SurviveEveryTransition", func(b *bench) {
		g := b.party("balancer", 4)
		g[2].Mode, g[3].Mode = catalog.Shared, catalog.Shared
		b.rewrite("balancer", field("x", bson.D{field("y", bson.A{int32(1), "z"})}))
		survived := func(step string) {
			b.Helper()
			if got := b.document("locks", "balancer").Lookup("x", "y", "1").String(); got != `"z"` {
				b.Errorf("%s: x.y.1 is %s", step, got)
			}
		}
		for _, one := range g {
			b.enter(one)
			survived("enter")
		}
		b.leave(g[0].Session, grant(g[1], planted+2))
		survived("leave")
		assert.NoErr(b, assert.Err(On(b.Catalog).Evict(b.ctx, dead(g[1]), "silent")))
		survived("evict")
		b.leave(g[2].Session)
		b.leave(g[3].Session)
		survived("leave of the last")
		b.rewrite("balancer", field("waiters", bson.A{plantedWaiter(g[0])}))
		assert.NoErr(b, assert.Err(On(b.Catalog).GrantNext(b.ctx, "balancer")))
		survived("grant next")
	}},
}

// malformedQueue sets a field to a malformed value in a held and in a free document. It checks the
// errors of Enter, Evict, GrantNext, Leave and a read, and that the holder can still release.
func (b *bench) malformedQueue(name, key string, value any, where string) {
	b.Helper()
	holder := catalog.Holder{
		Session: catalog.Session{Name: name, TS: bson.NewObjectID()}, Process: alice,
	}
	b.insert("locks", with(held(name, alice), field("ts", holder.TS), field(key, value)))
	b.insert("locks", append(free("free "+name), field(key, value)))
	for _, name := range []string{name, "free " + name} {
		b.wantUntouched("locks", name, func() {
			_, err := On(b.Catalog).Enter(b.ctx, request(name, bob), catalog.Queue)
			b.wantMalformed(err, "locks", name, where)
			holder := holder
			holder.Name = name
			_, err = On(b.Catalog).Evict(b.ctx, holder, "silent")
			b.wantMalformed(err, "locks", name, where)
			_, err = On(b.Catalog).GrantNext(b.ctx, name)
			b.wantMalformed(err, "locks", name, where)
			_, err = On(b.Catalog).Leave(b.ctx, request(name, bob).Session)
			b.wantErr(err, catalog.ErrNoMatch)
		})
		look := b.look(name)
		if look.LockErr == nil {
			b.Errorf("%s: want LockErr, got %+v", name, look)
			continue
		}
		b.wantMalformed(look.LockErr, "locks", name, where)
	}
	b.leave(holder.Session)
	b.wantDocument(b.document("locks", name), with(held(name, alice), field("ts", holder.TS),
		field(key, value), field("state", int32(0)), field("rev", int64(1))))
}

// anyText checks that a lock may contain strings that are expressions in MongoDB's query language.
func (b *bench) anyText(name string, mode catalog.Mode) {
	b.Helper()
	g := b.party(name, 3)
	for i, text := range []string{"$who", "$$ROOT.ts", "a.$.b"} {
		g[i].Mode, g[i].Process, g[i].Who, g[i].Why = mode, "$"+text, text, "$$NOW"
		if mode == catalog.Permit {
			g[i].Limit = 1
		}
	}
	if mode == catalog.Shared {
		g[1].Mode = catalog.Exclusive // so that g[1] waits, and g[2] behind it
	}
	for _, one := range g {
		b.enter(one)
	}
	b.leave(g[0].Session, grant(g[1], planted+2))
	grants, err := On(b.Catalog).Evict(b.ctx, dead(g[1]), "$evidence.$x")
	want := grant(g[2], planted+3)
	want.Evidence = "$evidence.$x"
	b.wantGrants(grants, err, want)
	doc := with(holding(g[2], planted+3, 5), field("evidence", want.Evidence))
	switch mode {
	case catalog.Permit:
		doc = with(doc, field("limit", int32(1)))
		fallthrough
	case catalog.Shared:
		doc = with(doc, field("mode", string(mode)),
			field("sharers", bson.A{sharing(g[2], planted+3)}))
	}
	b.wantDocument(b.document("locks", name), doc)
}

// sharedBy returns the document of a lock that the given sessions share.
func sharedBy(mode catalog.Mode, r catalog.Request, fence, rev int64, sharers ...bson.D) bson.D {
	list := bson.A{}
	for _, s := range sharers {
		list = append(list, s)
	}
	return with(acquired(r, fence, rev), field("mode", string(mode)), field("sharers", list))
}

var sharedCases = []testCase{
	{"Readers_HoldTogether", func(b *bench) {
		g := b.readers("balancer", 3)
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Shared, g[0], planted+3, 3, sharing(g[0], planted+1),
				sharing(g[1], planted+2), sharing(g[2], planted+3)),
			field("grants", line(g[2], planted+3))))
		l := b.look("balancer").Lock
		for i, one := range g {
			p, ok := l.HeldBy(one.TS)
			if !ok || p.Fence != planted+int64(i)+1 || p.Mode != catalog.Shared || !b.near(p.Since) {
				b.Errorf("reader %d: %+v", i, p)
			}
		}
	}},
	{"Writer_WaitsForReaders_AndReadersBehindItWait", func(b *bench) {
		g := b.entered(5, 0, 1, 3, 4)
		l := b.look("balancer").Lock
		if len(l.Sharers) != 2 || len(l.Waiters) != 3 || l.Waiters[1].Mode != catalog.Shared {
			b.Fatalf("lock: %+v", l)
		}
		b.leave(g[0].Session)
		b.leave(g[1].Session, grant(g[2], planted+3))
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[2], planted+3, 7), waiters(g[3], g[4])))
		b.leave(g[2].Session, grant(g[3], planted+4), grant(g[4], planted+5))
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Shared, g[3], planted+5, 8, sharing(g[3], planted+4),
				sharing(g[4], planted+5)),
			field("grants", line(g[3], planted+4)+line(g[4], planted+5))))
	}},
	{"FirstReaderLeaves_TheNextStandsOnTop", func(b *bench) {
		g := b.party("balancer", 3)
		g[1].Takeover, g[1].Who = takeover/3, "another who"
		for i := range g {
			g[i].Mode = catalog.Shared
			b.enter(g[i])
		}
		b.leave(g[0].Session)
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Shared, g[1], planted+3, 4, sharing(g[1], planted+2),
				sharing(g[2], planted+3)),
			field("grants", line(g[2], planted+3))))
		b.leave(g[2].Session)
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Shared, g[1], planted+3, 5, sharing(g[1], planted+2)),
			field("grants", line(g[2], planted+3))))
	}},
	{"LastReaderLeaves_TheLockIsFreeForAnyMode", func(b *bench) {
		g := b.readers("balancer", 2)
		b.leave(g[1].Session)
		b.leave(g[0].Session)
		b.wantDocument(b.document("locks", "balancer"), with(acquired(g[0], planted+2, 4),
			field("state", int32(0)), field("grants", line(g[1], planted+2))))
		if l := b.acquire(request("balancer", bob)); l.Mode != catalog.Exclusive || l.Fence != planted+3 {
			b.Errorf("lock: %+v", l)
		}
	}},
	{"WaitingWriterGivesUp_ReadersBehindItHold", func(b *bench) {
		g := b.entered(4, 0, 2, 3)
		b.leave(g[1].Session, grant(g[2], planted+2), grant(g[3], planted+3))
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Shared, g[0], planted+3, 5, sharing(g[0], planted+1),
				sharing(g[2], planted+2), sharing(g[3], planted+3)),
			field("grants", line(g[2], planted+2)+line(g[3], planted+3))))
	}},
	{"Readers_EndAtTheNextWriter", func(b *bench) {
		g := b.entered(5, 1, 2, 4)
		b.leave(g[0].Session, grant(g[1], planted+2), grant(g[2], planted+3))
		b.leave(g[2].Session)
		b.leave(g[1].Session, grant(g[3], planted+4))
		b.leave(g[3].Session, grant(g[4], planted+5))
	}},
	{"ReleaseOfASharer_DoesAsLeave", func(b *bench) {
		g := b.readers("balancer", 3)
		for i, one := range g {
			assert.Must(b, b.release(one.Session))
			if l := b.look("balancer").Lock; len(l.Holders()) != 2-i {
				b.Errorf("lock: %+v", l)
			}
			b.wantErr(b.release(one.Session), catalog.ErrNoMatch)
		}
	}},
	{"Permits_HoldUpToTheLimit", func(b *bench) {
		g := b.permits("balancer", 4, 2)
		limit := field("limit", int32(2))
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Permit, g[0], planted+2, 4, sharing(g[0], planted+1),
				sharing(g[1], planted+2)),
			field("grants", line(g[1], planted+2)), limit, waiters(g[2], g[3])))
		b.leave(g[0].Session, grant(g[2], planted+3))
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Permit, g[1], planted+3, 5, sharing(g[1], planted+2),
				sharing(g[2], planted+3)),
			field("grants", line(g[2], planted+3)), limit, waiters(g[3])))
		b.leave(g[3].Session)
		b.leave(g[2].Session)
		b.leave(g[1].Session)
		b.wantDocument(b.document("locks", "balancer"), with(acquired(g[1], planted+3, 8),
			field("state", int32(0)), field("grants", line(g[2], planted+3))))
	}},
	{"OnePermit_IsHeldByOne", func(b *bench) {
		g := b.permits("balancer", 3, 1)
		b.leave(g[0].Session, grant(g[1], planted+2))
		b.leave(g[1].Session, grant(g[2], planted+3))
		b.leave(g[2].Session)
	}},
	{"Permits_InUse_AnotherLimitIsAnError", func(b *bench) {
		g := b.permits("balancer", 3, 2)
		other := request("balancer", bob)
		wantAll := func() {
			b.Helper()
			for _, limit := range []int32{0, 1, 3} {
				if other.Limit, other.Mode = limit, catalog.Permit; limit == 0 {
					other.Mode = catalog.Shared
				}
				b.wantLimit(other, 2)
			}
			other.Mode = catalog.Exclusive
			other.Limit = 0
			b.wantLimit(other, 2)
		}
		wantAll()
		b.leave(g[0].Session, grant(g[2], planted+3))
		b.leave(g[1].Session)
		wantAll()
		b.leave(g[2].Session)
		other.Mode, other.Limit = catalog.Permit, 5
		if l := b.enter(other); !l.Held || l.Limit != 5 || l.Mode != catalog.Permit {
			b.Errorf("lock: %+v", l)
		}
	}},
	{"Permits_FreeWithWaiters_AnotherLimitIsAnError", func(b *bench) {
		b.permits("balancer", 3, 2)
		b.rewrite("balancer", field("state", int32(0)))
		other := request("balancer", bob)
		b.wantLimit(other, 2)
		other.Mode, other.Limit = catalog.Permit, 3
		b.wantLimit(other, 2)
		other.Limit = 2
		b.enter(other)
	}},
	{"InUseAsALock_APermitIsAnError", func(b *bench) {
		b.inLine("exclusive", 2)
		b.readers("shared", 2)
		b.acquire(request("acquired", alice))
		b.insert("locks", held("foreign", alice))
		for _, name := range []string{"exclusive", "shared", "acquired", "foreign"} {
			r := request(name, bob)
			r.Mode, r.Limit = catalog.Permit, 2
			b.wantLimit(r, 0)
		}
	}},
	{"Permits_ForeignReleaseWithoutWaiters_AnyModeMayEnter", func(b *bench) {
		b.permits("balancer", 2, 2)
		b.rewrite("balancer", field("state", int32(0)))
		r := request("balancer", bob)
		b.enter(r)
		b.wantDocument(b.document("locks", "balancer"), holding(r, planted+3, 3))
	}},
}
