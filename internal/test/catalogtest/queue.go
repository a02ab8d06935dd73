package catalogtest

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// planted is a fence that each grant raises by 1. It is large, because a grant replaces a fence
// below 1<<31 by the time of the server's clock in milliseconds.
const planted = int64(1) << 40

// requests inserts a free lock whose fence is the constant planted. It returns n requests for the
// lock, each of another process.
func (b *bench) requests(name string, n int) []catalog.Request {
	b.Helper()
	b.insert("locks", append(free(name), field("fence", planted)))
	grants := make([]catalog.Request, n)
	for i := range grants {
		grants[i] = request(name, process(i))
		grants[i].Why = fmt.Sprint("round ", i)
	}
	return grants
}

func (b *bench) enter(r catalog.Request) catalog.Lock {
	b.Helper()
	l, err := On(b.Catalog).Enter(b.ctx, r, catalog.Queue)
	assert.Must(b, err, "enter")
	return l
}

func (b *bench) leave(s catalog.Session, want ...catalog.Grant) {
	b.Helper()
	grants, err := On(b.Catalog).Leave(b.ctx, s)
	b.wantGrants(grants, err, want...)
}

func (b *bench) wantGrants(got []catalog.Grant, err error, want ...catalog.Grant) {
	b.Helper()
	if err != nil || !slices.Equal(want, got) {
		b.Errorf("grants\nwant %+v\ngot  %+v, %v", want, got, err)
	}
}

func grant(r catalog.Request, fence int64) catalog.Grant {
	return catalog.Grant{Session: r.Session, Process: r.Process, Fence: fence}
}

func grantLine(r catalog.Request, fence int64) string {
	return catalog.GrantLine(r.TS, fence, r.Process)
}

// holding returns the expected document of a lock that only r holds.
func holding(r catalog.Request, fence, rev int64) bson.D {
	return with(acquired(r, fence, rev), field("grants", grantLine(r, fence)))
}

// waiting returns r as an element of the field waiters.
func waiting(r catalog.Request) bson.D {
	d := bson.D{
		field("ts", r.TS), field("process", r.Process), field("who", r.Who), field("why", r.Why),
		field("takeoverMS", r.Takeover.Milliseconds()), field("mode", string(r.Mode)),
		field("since", serverDate),
	}
	if r.Mode == catalog.Permit {
		d = append(d, field("limit", r.Limit))
	}
	return d
}

func sharing(r catalog.Request, fence int64) bson.D {
	return bson.D{
		field("ts", r.TS), field("process", r.Process), field("who", r.Who), field("why", r.Why),
		field("takeoverMS", r.Takeover.Milliseconds()), field("when", serverDate),
		field("fence", fence),
	}
}

// plantedWaiter is like waiting, but with a fixed time in the field since.
func plantedWaiter(r catalog.Request) bson.D {
	return with(waiting(r), field("since", bson.DateTime(5)))
}

func waiters(grants ...catalog.Request) bson.E {
	list := bson.A{}
	for _, g := range grants {
		list = append(list, waiting(g))
	}
	return field("waiters", list)
}

func (b *bench) rewrite(name string, fields ...bson.E) {
	b.Helper()
	var doc bson.D
	assert.Must(b, bson.Unmarshal(b.document("locks", name), &doc))
	assert.Must(b, b.Delete(b.ctx, "locks", name))
	b.insert("locks", with(doc, fields...))
}

func (b *bench) refused(r catalog.Request, how catalog.EnterMode, want error) {
	b.Helper()
	b.wantUntouched("locks", r.Name, func() {
		_, err := On(b.Catalog).Enter(b.ctx, r, how)
		b.wantErr(err, want)
	})
}

func dead(r catalog.Request) catalog.Holder {
	return catalog.Holder{Session: r.Session, Process: r.Process}
}

// queued makes n processes enter a lock one after the other. The first holds the lock, and the
// others wait.
func (b *bench) queued(name string, n int) []catalog.Request {
	b.Helper()
	return b.sharing(name, n, catalog.Exclusive, 0)
}

func (b *bench) readers(name string, n int) []catalog.Request {
	b.Helper()
	return b.sharing(name, n, catalog.Shared, 0)
}

func (b *bench) permits(name string, n int, limit int32) []catalog.Request {
	b.Helper()
	return b.sharing(name, n, catalog.Permit, limit)
}

func (b *bench) sharing(name string, n int, mode catalog.Mode, limit int32) []catalog.Request {
	b.Helper()
	g := b.requests(name, n)
	for i := range g {
		g[i].Mode, g[i].Limit = mode, limit
		b.enter(g[i])
	}
	return g
}

// fillQueue replaces the queue by n waiters. Each of them differs from r only in its session,
// process and time.
func (b *bench) fillQueue(r catalog.Request, n int, since time.Time) {
	b.Helper()
	list := bson.A{}
	for i := range n {
		r.TS, r.Process = bson.NewObjectID(), process(i)
		list = append(list, with(waiting(r), field("since", since)))
	}
	b.rewrite(r.Name, field("waiters", list))
}

func (b *bench) revOf(name string) int64 {
	b.Helper()
	rev, _ := b.document("locks", name).Lookup("rev").AsInt64OK()
	return rev
}

func (b *bench) wantQueue(l catalog.Lock, want ...catalog.Request) {
	b.Helper()
	assert.MustEqual(b, len(l.Waiters), len(want), "%d waiters, want %d")
	for i, g := range want {
		if l.Waiters[i].TS != g.TS {
			b.Errorf("waiter %d is %s, want %s", i, l.Waiters[i].Process, g.Process)
		}
	}
}

// wantClockFence checks that a fence is the time of the server's clock in milliseconds.
func (b *bench) wantClockFence(fence int64) {
	b.Helper()
	if !b.near(time.UnixMilli(fence)) {
		b.Errorf("fence %d is not the server's clock", fence)
	}
}

var queueCases = []testCase{
	{"Enter_NewName_HoldsWithAFenceOfTheClock", func(b *bench) {
		r := request("balancer", alice)
		l := b.enter(r)
		b.wantClockFence(l.Fence)
		b.wantGrants(l.GrantsOf(alice), nil, grant(r, l.Fence))
		b.wantDocument(b.document("locks", "balancer"), holding(r, l.Fence, 1))
	}},
	{"Enter_SmallFence_IsRaisedToTheClock", func(b *bench) {
		for _, fence := range []any{int32(41), int64(1)<<31 - 1, int32(0)} {
			name := label(fence)
			b.insert("locks", append(free(name), field("fence", fence)))
			b.wantClockFence(b.enter(request(name, alice)).Fence)
		}
		b.insert("locks", append(free("large"), field("fence", int64(1)<<31)))
		assert.Equal(b, b.enter(request("large", alice)).Fence, 1<<31+1, "fence %d, want %d")
	}},
	{"Lives_OfAnyName", func(b *bench) { // G4
		for _, name := range []string{"$set", "a.b", "$$NOW", "$waiters.0", " ", "🔒", `{"$gt": ""}`} {
			b.live(name, life{steps: "x1 s2 s3 x4 e1 -3", want: "s2 | x4"})
			b.live(name+"p", life{steps: "p1/1 p2/1 e1", want: "p2 |"})
		}
	}},
	{"NoDocument_NothingIsCreated", func(b *bench) {
		for _, step := range []string{
			"-1:no", "c1:no", "n1/7:no", "e1:no", "r1/1:no", "f1/2:no", "b1/0:no", "y:no", "g:no",
		} {
			b.step("missing", nil, step, true)
		}
		_, err := b.Catalog.EnterTransaction(b.ctx, request("missing", alice))
		b.wantErr(err, catalog.ErrNoTransactions) // the context has no transaction
		if raw := b.document("locks", "missing"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"Enter_FullQueue_InEveryMode", func(b *bench) {
		for name, kind := range map[string]catalog.Request{
			"exclusive": {}, "shared": {Mode: catalog.Shared}, "permits": {Mode: catalog.Permit, Limit: 1},
		} {
			of := func(process string) catalog.Request {
				r := request(name, process)
				r.Mode, r.Limit = kind.Mode, kind.Limit
				return r
			}
			holder := of(alice)
			if kind.Mode == catalog.Shared {
				holder.Mode = catalog.Exclusive
			}
			b.insert("locks", append(free(name), field("fence", planted)))
			b.enter(holder)
			b.fillQueue(of(bob), catalog.MaxWaiters-1, time.UnixMilli(5))
			last := of(bob)
			if l := b.enter(last); len(l.Waiters) != catalog.MaxWaiters {
				b.Fatalf("%s: want %d waiters, got %d", name, catalog.MaxWaiters, len(l.Waiters))
			}
			b.refused(of(bob), catalog.Queue, catalog.ErrQueueFull)
			b.refused(of("new"), catalog.Try, catalog.ErrNotFree)
			b.wantUntouched("locks", name, func() { b.enter(last) })
			assert.Must(b, b.release(holder.Session))
			b.enter(of("new"))
		}
	}},
	{"Permits_Document", func(b *bench) {
		g := b.permits("balancer", 4, 2)
		sharers := field("sharers", bson.A{sharing(g[0], planted+1), sharing(g[1], planted+2)})
		b.wantDocument(b.document("locks", "balancer"), with(holding(g[0], planted+2, 4),
			field("grants", grantLine(g[1], planted+2)), field("mode", "permit"), field("limit", int32(2)),
			sharers, waiters(g[2], g[3])))
	}},
	{"Evict_HolderWithoutProcess_GrantsToTheNext", func(b *bench) { // F5
		for name, doc := range map[string]bson.D{
			"missing": without(held("missing", ""), "process"),
			"null":    with(held("null", ""), field("process", nil)),
			"empty":   held("empty", ""),
		} {
			b.insert("locks", append(doc, field("fence", planted)))
			r := request(name, bob)
			grants, err := On(b.Catalog).Evict(b.ctx, HolderOf(b.enter(r)), "silent")
			want := grant(r, planted+1)
			want.Evidence = "silent"
			b.wantGrants(grants, err, want)
		}
	}},
	{"Leave_TooLargeAFence_NoGrant", func(b *bench) { // F8
		holder, next := request("balancer", alice), request("balancer", bob)
		b.insert("locks", with(held("balancer", alice), field("ts", holder.TS),
			field("fence", int64(1)<<62+1), field("waiters", bson.A{plantedWaiter(next)})))
		b.leave(holder.Session)
		_, err := b.Catalog.Read(b.ctx, "balancer") // its fence is too large to be raised
		b.wantMalformed(err, "locks", "balancer", "fence")
		if n, _ := b.document("locks", "balancer").Lookup("state").AsInt64OK(); n != 0 {
			b.Errorf("state: want 0, got %d", n)
		}
	}},
}

var passoverCases = []testCase{
	{"Enter_QueuedBefore_IsAheadOfLaterWaiters", func(b *bench) {
		g := b.queued("balancer", 3)
		back := request("balancer", g[1].Process)
		back.Since = b.snapshot("balancer").Lock.Waiters[0].Since.Add(-time.Second)
		b.leave(g[1].Session)
		l := b.enter(back)
		b.wantQueue(l, back, g[2])
		if since := l.Waiters[0].Since; !since.Equal(back.Since) {
			b.Errorf("queued since %v, want %v", since, back.Since)
		}
	}},
	{"Enter_QueuedBefore_FullQueue_HasItsPlace", func(b *bench) {
		of := func(process string, since int64) catalog.Request {
			r := request("balancer", process)
			r.Since = time.UnixMilli(since).UTC()
			return r
		}
		const long, later = 1_000_000_000_000, 4_000_000_000_000
		b.enter(request("balancer", alice))
		b.fillQueue(request("balancer", bob), catalog.MaxWaiters, time.UnixMilli(long))
		back := of(bob, long-1000)
		if l := b.enter(back); len(l.Waiters) != catalog.MaxWaiters+1 || l.Waiters[0].TS != back.TS {
			b.Errorf("%d waiters, the first is %s", len(l.Waiters), l.Waiters[0].Process)
		}
		b.refused(request("balancer", "new"), catalog.Queue, catalog.ErrQueueFull)
		b.refused(of("the last", later), catalog.Queue, catalog.ErrQueueFull)
		b.fillQueue(request("balancer", bob), 2*catalog.MaxWaiters-1, time.UnixMilli(long))
		if l := b.enter(of("back", long-1000)); len(l.Waiters) != 2*catalog.MaxWaiters {
			b.Errorf("%d waiters, want twice MaxWaiters", len(l.Waiters))
		}
		b.refused(of("one too many", long-1000), catalog.Queue, catalog.ErrQueueFull)
	}},
	{"Enter_QueuedBefore_IsBehindEarlierWaiters", func(b *bench) {
		g := b.queued("balancer", 3)
		late := request("balancer", "late")
		late.Since = time.UnixMilli(4_000_000_000_000).UTC() // the server's clock has stepped back
		b.wantQueue(b.enter(late), g[1], g[2], late)
	}},
	{"Enter_QueuedBefore_FreeLock_IsAcquired", func(b *bench) {
		r := request("balancer", alice)
		r.Since = time.UnixMilli(1_000_000_000_000).UTC()
		l := b.enter(r)
		b.wantClockFence(l.Fence) // although there was no document
		b.wantClockFence(l.When.UnixMilli())
	}},
}
