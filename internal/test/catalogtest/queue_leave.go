package catalogtest

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// inLine makes n processes enter the lock in order. The first process holds the lock.
func (b *bench) inLine(name string, n int) []catalog.Request {
	b.Helper()
	g := b.party(name, n)
	for _, one := range g {
		b.enter(one)
	}
	return g
}

var leaveCases = []testCase{
	{"Leave_NobodyWaits_ChangesStateAndRevOnly", func(b *bench) {
		g := b.inLine("balancer", 1)
		b.leave(g[0].Session)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 2), field("state", int32(0))))
		if l := b.enter(request("balancer", bob)); l.Fence != planted+2 {
			b.Errorf("fence: want %d, got %d", planted+2, l.Fence)
		}
	}},
	{"Leave_OneWaits_ItHolds", func(b *bench) {
		g := b.party("balancer", 2)
		g[1].Takeover, g[1].Who = takeover/3, "another who"
		b.enter(g[0])
		b.enter(g[1])
		b.leave(g[0].Session, grant(g[1], planted+2))
		b.wantDocument(b.document("locks", "balancer"), holding(g[1], planted+2, 3))
	}},
	{"Leave_ManyWait_OneAfterTheOther", func(b *bench) {
		g := b.inLine("balancer", 5)
		for i := range g[1:] {
			fence := planted + int64(i) + 2
			b.leave(g[i].Session, grant(g[i+1], fence))
			want := with(holding(g[i+1], fence, 6+int64(i)), waiters(g[i+2:]...))
			if len(g[i+2:]) == 0 {
				want = without(want, "waiters")
			}
			b.wantDocument(b.document("locks", "balancer"), want)
		}
		b.leave(g[4].Session)
	}},
	{"Leave_ForeignHolder_GrantsAndReplacesItsFields", func(b *bench) {
		for _, old := range generations() {
			b.insert("locks", with(old.held, field("_id", old.name), field("fence", planted)))
			h := request(old.name, bob)
			rev := b.revOf(old.name)
			b.enter(h)
			b.leave(catalog.Session{Name: old.name, TS: historicalTS}, grant(h, planted+1))
			b.wantDocument(b.document("locks", old.name), holding(h, planted+1, rev+2))
		}
	}},
	{"Leave_WaiterInTheMiddle_ChangesTheLineOnly", func(b *bench) {
		g := b.inLine("balancer", 4)
		b.leave(g[2].Session)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 5), waiters(g[1], g[3])))
		b.leave(g[1].Session)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 6), waiters(g[3])))
		b.leave(g[3].Session)
		b.wantDocument(b.document("locks", "balancer"), holding(g[0], planted+1, 7))
		b.leave(g[0].Session)
	}},
	{"Leave_WaiterOfAFreeLock_GrantsToTheNext", func(b *bench) {
		g := b.inLine("balancer", 3)
		b.rewrite("balancer", field("state", int32(0))) // a foreign release
		b.leave(g[1].Session, grant(g[2], planted+2))
		b.wantDocument(b.document("locks", "balancer"), holding(g[2], planted+2, 4))
	}},
	{"Leave_OnlyWaiterOfAFreeLock_LeavesItFree", func(b *bench) {
		g := b.inLine("balancer", 2)
		b.rewrite("balancer", field("state", int32(0)))
		b.leave(g[1].Session)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 3), field("state", int32(0))))
	}},
	{"Leave_Unknown_TouchesNothing", func(b *bench) {
		g := b.inLine("balancer", 2)
		for _, s := range []catalog.Session{
			request("balancer", alice).Session, {Name: "balancer"}, {Name: "balancer", TS: historicalTS},
		} {
			b.wantUntouched("locks", "balancer", func() {
				_, err := On(b.Catalog).Leave(b.ctx, s)
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
		_, err := On(b.Catalog).Leave(b.ctx, catalog.Session{Name: "other", TS: g[0].TS})
		b.wantErr(err, catalog.ErrNoMatch)
		if raw := b.document("locks", "other"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"LeaveTwice_SecondMatchesNothing", func(b *bench) {
		g := b.inLine("balancer", 4)
		b.leave(g[2].Session)
		b.leave(g[0].Session, grant(g[1], planted+2))
		for _, one := range []catalog.Request{g[0], g[2]} {
			b.wantUntouched("locks", "balancer", func() {
				_, err := On(b.Catalog).Leave(b.ctx, one.Session)
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
	}},
	{"Leave_TooLargeAFence_GrantsNobody", func(b *bench) { // F8
		holder, next := request("balancer", alice), request("balancer", bob)
		b.insert("locks", with(held("balancer", alice), field("ts", holder.TS),
			field("fence", int64(1)<<62+1), field("waiters", bson.A{plantedWaiter(next)})))
		b.leave(holder.Session)
		_, err := b.Catalog.Read(b.ctx, "balancer") // free; its fence cannot be raised
		b.wantMalformed(err, "locks", "balancer", "fence")
		if n, _ := b.document("locks", "balancer").Lookup("state").AsInt64OK(); n != 0 {
			b.Errorf("state: want 0, got %d", n)
		}
	}},
	{"Release_DoesAsLeave", func(b *bench) {
		g := b.inLine("balancer", 4)
		for _, one := range []catalog.Request{g[2], g[0]} {
			assert.Must(b, b.release(one.Session))
		}
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[1], planted+2, 6), waiters(g[3])))
		b.wantUntouched("locks", "balancer", func() {
			b.wantErr(b.release(g[0].Session), catalog.ErrNoMatch)
			b.wantErr(b.release(g[2].Session), catalog.ErrNoMatch)
		})
	}},
}

func (b *bench) revOf(name string) int64 {
	b.Helper()
	rev, _ := b.document("locks", name).Lookup("rev").AsInt64OK()
	return rev
}

var buryCases = []testCase{
	{"Evict_DeadHolder_GrantsWithTheEvidence", func(b *bench) {
		g := b.inLine("balancer", 3)
		grants, err := On(b.Catalog).Evict(b.ctx, dead(g[0]), "silent for 15m")
		want := grant(g[1], planted+2)
		want.Evidence = "silent for 15m"
		b.wantGrants(grants, err, want)
		b.wantDocument(b.document("locks", "balancer"), with(holding(g[1], planted+2, 4),
			field("evidence", want.Evidence), waiters(g[2])))
		b.wantGrants(b.look("balancer").Lock.GrantsOf(g[1].Process), nil, want)
		b.leave(g[1].Session, grant(g[2], planted+3))
		b.wantDocument(b.document("locks", "balancer"), holding(g[2], planted+3, 5))
	}},
	{"Evict_WhatIsNotAsWatched_TouchesNothing", func(b *bench) {
		g := b.inLine("balancer", 3)
		b.leave(g[1].Session)
		for _, one := range []catalog.Holder{
			{Session: g[0].Session, Process: bob}, {Session: g[0].Session},
			{Session: g[2].Session, Process: g[0].Process}, {Session: g[2].Session}, dead(g[1]),
			{Session: catalog.Session{Name: "balancer"}, Process: g[0].Process},
			dead(request("balancer", g[0].Process)),
		} {
			b.wantUntouched("locks", "balancer", func() {
				_, err := On(b.Catalog).Evict(b.ctx, one, "silent")
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
		_, err := On(b.Catalog).Evict(b.ctx, dead(request("other", alice)), "silent")
		b.wantErr(err, catalog.ErrNoMatch)
		if raw := b.document("locks", "other"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"Evict_ReleasedHolder_TouchesNothing", func(b *bench) {
		g := b.inLine("balancer", 1)
		b.leave(g[0].Session)
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Evict(b.ctx, dead(g[0]), "silent")
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"Evict_DeadWaiter_ChangesTheLineOnly", func(b *bench) {
		g := b.inLine("balancer", 3)
		grants, err := On(b.Catalog).Evict(b.ctx, dead(g[1]), "silent")
		b.wantGrants(grants, err)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 4), waiters(g[2])))
	}},
	{"Evict_HolderWithoutWaiters_FreesTheLock", func(b *bench) {
		g := b.inLine("balancer", 1)
		grants, err := On(b.Catalog).Evict(b.ctx, dead(g[0]), "silent")
		b.wantGrants(grants, err)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 2), field("state", int32(0))))
	}},
	{"Evict_HolderWithoutProcess_GrantsToTheNext", func(b *bench) { // F5
		for name, doc := range map[string]bson.D{
			"missing": without(held("missing", ""), "process"),
			"null":    with(held("null", ""), field("process", nil)),
			"empty":   held("empty", ""),
		} {
			b.insert("locks", append(doc, field("fence", planted)))
			r := request(name, bob)
			l := b.enter(r)
			grants, err := On(b.Catalog).Evict(b.ctx, HolderOf(l), "silent")
			want := grant(r, planted+1)
			want.Evidence = "silent"
			b.wantGrants(grants, err, want)
		}
	}},
	{"Evict_OneSharerAmongSeveral_LeavesTheOthers", func(b *bench) {
		g := b.readers("balancer", 3)
		grants, err := On(b.Catalog).Evict(b.ctx, dead(g[1]), "silent")
		b.wantGrants(grants, err)
		b.wantDocument(b.document("locks", "balancer"), with(holding(g[0], planted+3, 4),
			field("grants", line(g[2], planted+3)), field("mode", "shared"),
			field("sharers", bson.A{sharing(g[0], planted+1), sharing(g[2], planted+3)})))
	}},
	{"Evict_WaitingWriter_GrantsTheReadersBehindIt", func(b *bench) {
		g := b.party("balancer", 4)
		g[0].Mode, g[2].Mode, g[3].Mode = catalog.Shared, catalog.Shared, catalog.Shared
		for _, one := range g {
			b.enter(one)
		}
		grants, err := On(b.Catalog).Evict(b.ctx, dead(g[1]), "silent")
		want := []catalog.Grant{grant(g[2], planted+2), grant(g[3], planted+3)}
		for i := range want {
			want[i].Evidence = "silent"
		}
		b.wantGrants(grants, err, want...)
		l := b.look("balancer").Lock
		b.wantGrants(l.Grants, nil, want...)
		b.wantGrants(l.GrantsOf(g[0].Process), nil, grant(g[0], planted+1))
	}},
	{"PutFirst_OneOfTheLine_IsNext", func(b *bench) {
		g := b.inLine("balancer", 4)
		for range 2 { // a repetition changes nothing
			assert.Must(b, On(b.Catalog).PutFirst(b.ctx, g[0].Session, g[2].TS))
			if l := b.look("balancer").Lock; len(l.Waiters) != 3 || l.Waiters[0].TS != g[2].TS ||
				l.Waiters[1].TS != g[1].TS || l.Waiters[2].TS != g[3].TS || l.TS != g[0].TS {
				b.Errorf("the line is %+v", l.Waiters)
			}
		}
		b.leave(g[0].Session, grant(g[2], planted+2))
		b.leave(g[2].Session, grant(g[1], planted+3))
	}},
	{"PutFirst_NotTheHolderOrNobodyInLine_TouchesNothing", func(b *bench) {
		g := b.inLine("balancer", 3)
		b.readers("shared", 2)
		r := request("shared", bob)
		b.enter(r)
		shared := b.look("shared").Lock
		for _, c := range []struct {
			s  catalog.Session
			to bson.ObjectID
		}{
			{g[1].Session, g[2].TS}, {g[0].Session, g[0].TS}, {g[0].Session, historicalTS},
			{shared.Session(), r.TS}, {catalog.Session{Name: "other", TS: g[0].TS}, g[1].TS},
		} {
			b.wantUntouched("locks", c.s.Name, func() {
				b.wantErr(On(b.Catalog).PutFirst(b.ctx, c.s, c.to), catalog.ErrNoMatch)
			})
		}
	}},
	{"RequestYield_IsOfTheHolderOnly", func(b *bench) {
		g := b.inLine("balancer", 2)
		assert.Must(b, On(b.Catalog).RequestYield(b.ctx, "balancer", "$ts", "$why"))
		l := b.look("balancer").Lock
		_, dated := b.document("locks", "balancer").Lookup("yield", "at").DateTimeOK()
		if l.Yield.By != "$ts" || l.Yield.Why != "$why" || !dated ||
			l.TS != g[0].TS || l.Fence != planted+1 || len(l.Waiters) != 1 {
			b.Errorf("asked: %+v", l)
		}
		b.leave(g[0].Session, grant(g[1], planted+2))
		if l := b.look("balancer").Lock; l.Yield.By != "" {
			b.Errorf("the next holder is asked, too: %+v", l.Yield)
		}
	}},
	{"RequestYield_NobodyHoldsAlone_TouchesNothing", func(b *bench) {
		g := b.inLine("free", 1)
		b.leave(g[0].Session)
		b.readers("shared", 1)
		for _, name := range []string{"free", "shared", "other"} {
			b.wantUntouched("locks", name, func() {
				b.wantErr(On(b.Catalog).RequestYield(b.ctx, name, "x", "y"), catalog.ErrNoMatch)
			})
		}
	}},
	{"GrantNext_FreeWithWaiters_GrantsToTheFirst", func(b *bench) {
		g := b.inLine("balancer", 3)
		b.rewrite("balancer", field("state", int32(0))) // a foreign release
		grants, err := On(b.Catalog).GrantNext(b.ctx, "balancer")
		b.wantGrants(grants, err, grant(g[1], planted+2))
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[1], planted+2, 4), waiters(g[2])))
	}},
	{"GrantNext_FreeWithReaders_GrantsTheRun", func(b *bench) {
		g := b.party("balancer", 4)
		g[1].Mode, g[2].Mode = catalog.Shared, catalog.Shared
		for _, one := range g {
			b.enter(one)
		}
		b.rewrite("balancer", field("state", int64(0)))
		grants, err := On(b.Catalog).GrantNext(b.ctx, "balancer")
		b.wantGrants(grants, err, grant(g[1], planted+2), grant(g[2], planted+3))
	}},
	{"GrantNext_ForeignReleaseOfPermits_GrantsUpToTheLimit", func(b *bench) {
		g := b.permits("balancer", 5, 2)
		b.rewrite("balancer", field("state", int32(0)))
		grants, err := On(b.Catalog).GrantNext(b.ctx, "balancer")
		b.wantGrants(grants, err, grant(g[2], planted+3), grant(g[3], planted+4))
		b.wantDocument(b.document("locks", "balancer"), with(holding(g[2], planted+4, 6),
			field("grants", line(g[2], planted+3)+line(g[3], planted+4)), field("mode", "permit"),
			field("limit", int32(2)), waiters(g[4]),
			field("sharers", bson.A{sharing(g[2], planted+3), sharing(g[3], planted+4)})))
	}},
	{"GrantNext_NothingToGrant_TouchesNothing", func(b *bench) {
		b.inLine("held", 2)
		g := b.inLine("free", 1)
		b.leave(g[0].Session)
		b.readers("shared", 2)
		b.enter(request("shared", bob))
		b.permits("permits", 3, 2)
		for _, name := range []string{"held", "free", "shared", "permits"} {
			b.wantUntouched("locks", name, func() {
				_, err := On(b.Catalog).GrantNext(b.ctx, name)
				b.wantErr(err, catalog.ErrNoMatch)
			})
		}
		_, err := On(b.Catalog).GrantNext(b.ctx, "other")
		b.wantErr(err, catalog.ErrNoMatch)
		if raw := b.document("locks", "other"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
}

// readers makes n processes share a lock. permits makes n processes enter a semaphore with the
// given limit.
func (b *bench) readers(name string, n int) []catalog.Request {
	return b.sharing(name, n, catalog.Shared, 0)
}

func (b *bench) permits(name string, n int, limit int32) []catalog.Request {
	return b.sharing(name, n, catalog.Permit, limit)
}

func (b *bench) sharing(name string, n int, mode catalog.Mode, limit int32) []catalog.Request {
	b.Helper()
	g := b.party(name, n)
	for i := range g {
		g[i].Mode, g[i].Limit = mode, limit
		b.enter(g[i])
	}
	return g
}

// wantLine requires that the queue consists of want, in order.
func (b *bench) wantLine(l catalog.Lock, want ...catalog.Request) {
	b.Helper()
	assert.MustEqual(b, len(l.Waiters), len(want), "%d wait, want %d")
	for i, g := range want {
		if l.Waiters[i].TS != g.TS {
			b.Errorf("place %d is %s's, want %s's", i, l.Waiters[i].Process, g.Process)
		}
	}
}

var passoverCases = []testCase{
	{"Evict_WhoWaits_TakesItsPlace", func(b *bench) {
		g := b.inLine("balancer", 3)
		dead := catalog.Holder{Session: g[1].Session, Process: g[1].Process, Waits: true}
		grants, err := On(b.Catalog).Evict(b.ctx, dead, "silent")
		b.wantGrants(grants, err)
		b.wantLine(*b.look("balancer").Lock, g[2])
	}},
	{"Evict_WhoWaited_AndHoldsMeanwhile_TouchesNothing", func(b *bench) {
		g := b.inLine("balancer", 3)
		b.leave(g[0].Session, grant(g[1], planted+2))
		dead := catalog.Holder{Session: g[1].Session, Process: g[1].Process, Waits: true}
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Evict(b.ctx, dead, "silent")
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"Enter_WhoStoodBefore_ComesBeforeThoseWhoCameLater", func(b *bench) {
		g := b.inLine("balancer", 3)
		was := *b.look("balancer").Lock
		first := g[1]
		back := first
		back.Session = request("balancer", back.Process).Session
		back.Since = was.Waiters[0].Since.Add(-time.Second)
		dead := catalog.Holder{Session: first.Session, Process: first.Process, Waits: true}
		assert.Value(On(b.Catalog).Evict(b.ctx, dead, "silent"))(b)
		l := b.enter(back)
		b.wantLine(l, back, g[2])
		if since := l.Waiters[0].Since; !since.Equal(back.Since) {
			b.Errorf("it stands there since %v, want %v: it may lose its place again", since, back.Since)
		}
	}},
	{"Enter_WhoStoodBefore_FullLine_HasItsPlace", func(b *bench) {
		b.enter(request("balancer", alice))
		planted := func(process string, since time.Time) bson.D {
			return with(plantedWaiter(request("balancer", process)), field("since", since))
		}
		line := bson.A{}
		for i := range catalog.MaxWaiters - 1 {
			line = append(line, planted(process(i), time.UnixMilli(1_000_000_000_000)))
		}
		b.rewrite("balancer", field("waiters", line))
		b.enter(request("balancer", "waiter"))
		back := request("balancer", bob)
		back.Since = b.look("balancer").Lock.Waiters[0].Since.Add(-time.Second)
		if l := b.enter(back); len(l.Waiters) != catalog.MaxWaiters+1 || l.Waiters[0].TS != back.TS {
			b.Errorf("%d wait, the first is %s", len(l.Waiters), l.Waiters[0].Process)
		}
		for name, g := range map[string]catalog.Request{
			"a newcomer": request("balancer", "new"), "the last": back,
		} {
			if g.Session = request("balancer", g.Process).Session; name == "the last" {
				g.Process, g.Since = "last", time.UnixMilli(4_000_000_000_000).UTC()
			}
			_, err := On(b.Catalog).Enter(b.ctx, g, catalog.Queue)
			b.wantErr(err, catalog.ErrQueueFull)
		}
		entered := assert.Value(b.document("locks", "balancer").Lookup("waiters").Array().Values())(b)
		line = bson.A{entered[0]}
		for i := range catalog.MaxWaiters - 2 {
			line = append(line, planted(fmt.Sprint("back ", i), back.Since))
		}
		for _, behind := range entered[1:] {
			line = append(line, behind)
		}
		b.rewrite("balancer", field("waiters", line))
		again := func(process string) catalog.Request {
			r := request("balancer", process)
			r.Since = back.Since
			return r
		}
		if l := b.enter(again("back")); len(l.Waiters) != 2*catalog.MaxWaiters {
			b.Errorf("%d wait, want twice as many as newcomers may", len(l.Waiters))
		}
		_, err := On(b.Catalog).Enter(b.ctx, again("one too many"), catalog.Queue)
		b.wantErr(err, catalog.ErrQueueFull)
	}},
	{"Enter_WhoStoodBefore_NotBeforeThoseWhoCameEarlier", func(b *bench) {
		g := b.inLine("balancer", 3)
		late := request("balancer", "late")
		late.Since = time.UnixMilli(4_000_000_000_000).UTC() // as after a clock that went back
		b.wantLine(b.enter(late), g[1], g[2], late)
	}},
	{"Enter_WhoStoodBefore_FreeLock_HasIt", func(b *bench) {
		r := request("balancer", alice)
		r.Since = time.UnixMilli(1_000_000_000_000).UTC()
		l, err := On(b.Catalog).Enter(b.ctx, r, catalog.Queue)
		if err != nil || l.TS != r.TS || !b.nearMillis(l.Fence) || !b.nearMillis(l.When.UnixMilli()) {
			b.Errorf("%+v, %v: want a fence from the clock, although there was no document", l, err)
		}
	}},
}
