package catalogtest

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// sharedBy is the document of a lock that the first of the given holds, as the others do.
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
		g := b.party("balancer", 5)
		for _, i := range []int{0, 1, 3, 4} {
			g[i].Mode = catalog.Shared
		}
		for _, one := range g {
			b.enter(one)
		}
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
		g := b.party("balancer", 4)
		for _, i := range []int{0, 2, 3} {
			g[i].Mode = catalog.Shared
		}
		for _, one := range g {
			b.enter(one)
		}
		b.leave(g[1].Session, grant(g[2], planted+2), grant(g[3], planted+3))
		b.wantDocument(b.document("locks", "balancer"), with(
			sharedBy(catalog.Shared, g[0], planted+3, 5, sharing(g[0], planted+1),
				sharing(g[2], planted+2), sharing(g[3], planted+3)),
			field("grants", line(g[2], planted+2)+line(g[3], planted+3))))
	}},
	{"Readers_EndAtTheNextWriter", func(b *bench) {
		g := b.party("balancer", 5)
		for _, i := range []int{1, 2, 4} {
			g[i].Mode = catalog.Shared
		}
		for _, one := range g {
			b.enter(one)
		}
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
