package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

var queueCases = slices.Concat(
	enterCases, lineCases, leaveCases, sharedCases, buryCases, queueReadCases, queueRaceCases,
)

// planted is a large fence. No grant raises it to the server's clock, so the next fence is known.
const planted = int64(1) << 40

// party inserts a free lock with a known large fence, and returns attempts of n processes.
func (b *bench) party(name string, n int) []catalog.Request {
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

// entered returns n attempts that entered the queue of "balancer" in order. The attempts with an
// index in readers are shared.
func (b *bench) entered(n int, readers ...int) []catalog.Request {
	b.Helper()
	g := b.party("balancer", n)
	for _, i := range readers {
		g[i].Mode = catalog.Shared
	}
	for _, one := range g {
		b.enter(one)
	}
	return g
}

// leave removes s from the lock and checks the new grants.
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

// grant returns the grant of r with the given fence.
func grant(r catalog.Request, fence int64) catalog.Grant {
	return catalog.Grant{Session: r.Session, Process: r.Process, Fence: fence}
}

func line(r catalog.Request, fence int64) string {
	return catalog.GrantLine(r.TS, fence, r.Process)
}

// holding returns the document of a lock that r alone holds, with the given fence and rev.
func holding(r catalog.Request, fence, rev int64) bson.D {
	return with(acquired(r, fence, rev), field("grants", line(r, fence)))
}

// waiting returns the queue entry of r. sharing returns the entry of r as one of several holders.
func waiting(r catalog.Request) bson.D {
	d := bson.D{
		field("ts", r.TS), field("process", r.Process), field("who", r.Who), field("why", r.Why),
		field("takeoverMS", r.Takeover.Milliseconds()), field("mode", string(r.Mode)),
		field("since", serverDate{}),
	}
	if r.Mode == catalog.Permit {
		d = append(d, field("limit", r.Limit))
	}
	return d
}

func sharing(r catalog.Request, fence int64) bson.D {
	return bson.D{
		field("ts", r.TS), field("process", r.Process), field("who", r.Who), field("why", r.Why),
		field("takeoverMS", r.Takeover.Milliseconds()), field("when", serverDate{}),
		field("fence", fence),
	}
}

// plantedWaiter returns a queue entry as an operator would write it.
func plantedWaiter(r catalog.Request) bson.D {
	return with(waiting(r), field("since", bson.DateTime(5)))
}

// waiters returns the queue field of an expected document.
func waiters(grants ...catalog.Request) bson.E {
	list := bson.A{}
	for _, g := range grants {
		list = append(list, waiting(g))
	}
	return field("waiters", list)
}

// rewrite changes fields of a lock document, like an operator.
func (b *bench) rewrite(name string, fields ...bson.E) {
	b.Helper()
	var doc bson.D
	assert.Must(b, bson.Unmarshal(b.document("locks", name), &doc))
	assert.Must(b, b.Delete(b.ctx, "locks", name))
	b.insert("locks", with(doc, fields...))
}

// refused checks that Enter fails with want and leaves the document unchanged.
func (b *bench) refused(r catalog.Request, how catalog.EnterMode, want error) {
	b.Helper()
	b.wantUntouched("locks", r.Name, func() {
		_, err := On(b.Catalog).Enter(b.ctx, r, how)
		b.wantErr(err, want)
	})
}

// wantLimit checks that r cannot enter, because the lock is in use with the recorded limit.
func (b *bench) wantLimit(r catalog.Request, recorded int32) {
	b.Helper()
	for _, how := range []catalog.EnterMode{catalog.Queue, catalog.Try} {
		b.wantUntouched("locks", r.Name, func() {
			_, err := On(b.Catalog).Enter(b.ctx, r, how)
			b.wantErr(err, catalog.ErrPermitMismatch)
			var other *catalog.PermitMismatchError
			want := catalog.PermitMismatchError{Name: r.Name, Recorded: recorded, Asked: r.Limit}
			if !errors.As(err, &other) || *other != want {
				b.Errorf("limit\nwant %+v\ngot  %+v", want, other)
			}
		})
	}
}

var enterCases = []testCase{
	{"Enter_NewName_HoldsWithAFenceOfTheClock", func(b *bench) {
		r := request("balancer", alice)
		l := b.enter(r)
		p, ok := l.HeldBy(r.TS)
		if !ok || !l.Held || p.Fence != l.Fence || len(l.Waiters) > 0 || l.Mode != catalog.Exclusive {
			b.Fatalf("lock: %+v", l)
		}
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
		if l := b.enter(request("large", alice)); l.Fence != 1<<31+1 {
			b.Errorf("fence: want %d, got %d", int64(1)<<31+1, l.Fence)
		}
	}},
	{"Enter_FreeDocument_KeepsForeignFields", func(b *bench) {
		r := request("balancer", alice)
		b.insert("locks", append(free("balancer"), field("fence", planted), field("waiters", bson.A{}),
			field("x", bson.D{field("y", "z")}), field("rev", int64(7)), field("who", "old"),
			field("when", bson.DateTime(5))))
		b.enter(r)
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(r, planted+1, 8), field("x", bson.D{field("y", "z")})))
	}},
	{"Enter_Held_StandsAtTheEnd", func(b *bench) {
		g := b.party("balancer", 3)
		g[1].Takeover = takeover / 3
		b.enter(g[0])
		l := b.enter(g[1])
		if p, ok := l.WaitedBy(g[1].TS); !ok || p.Process != g[1].Process || !b.near(p.Since) ||
			p.Takeover != takeover/3 || p.Fence != 0 || l.TS != g[0].TS || l.Fence != planted+1 {
			b.Errorf("lock: %+v", l)
		}
		l = b.enter(g[2])
		if len(l.Waiters) != 2 {
			b.Errorf("lock: %+v", l)
		}
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 3), waiters(g[1], g[2])))
	}},
	{"Enter_HeldByAnAcquisition_Waits", func(b *bench) {
		r, h := request("balancer", alice), request("balancer", bob)
		b.acquire(r)
		if l := b.enter(h); l.TS != r.TS || len(l.Waiters) != 1 {
			b.Errorf("lock: %+v", l)
		}
		b.wantDocument(b.document("locks", "balancer"), with(acquired(r, 1, 2), waiters(h)))
	}},
	{"Enter_ForeignHolder_LeavesItsFieldsAlone", func(b *bench) {
		for _, old := range generations() {
			doc := with(old.held, field("_id", old.name))
			b.insert("locks", doc)
			h := request(old.name, bob)
			if l := b.enter(h); !l.Held || l.TS != historicalTS {
				b.Errorf("%s: %+v", old.name, l)
			}
			rev, _ := old.held[len(old.held)-2].Value.(int64) // 0 for a document without a rev
			b.wantDocument(b.document("locks", old.name),
				with(doc, field("rev", rev+1), waiters(h)))
		}
	}},
	{"Enter_Twice_ChangesNothing", func(b *bench) {
		g := b.party("balancer", 3)
		for _, one := range g {
			b.enter(one)
		}
		for i, one := range g {
			for _, how := range []catalog.EnterMode{catalog.Queue, catalog.Try} {
				again := one
				again.Why, again.Mode, again.Limit = "again", catalog.Permit, 5
				b.wantUntouched("locks", "balancer", func() {
					l, err := On(b.Catalog).Enter(b.ctx, again, how)
					_, holds := l.HeldBy(one.TS)
					_, waits := l.WaitedBy(one.TS)
					if err != nil || holds != (i == 0) || waits != (i > 0) {
						b.Errorf("%d again: %+v, %v", i, l, err)
					}
				})
			}
		}
	}},
	{"Enter_TheHundredAndFirstWaiter_IsErrQueueFull", func(b *bench) {
		holder := request("balancer", alice)
		list := bson.A{}
		var first catalog.Request
		for i := range catalog.MaxWaiters - 1 {
			r := request("balancer", process(i))
			if i == 0 {
				first = r
			}
			list = append(list, plantedWaiter(r))
		}
		b.insert("locks", with(held("balancer", alice), field("ts", holder.TS),
			field("fence", planted), field("waiters", list)))
		last := request("balancer", bob)
		if l := b.enter(last); len(l.Waiters) != catalog.MaxWaiters {
			b.Fatalf("want %d waiters, got %d", catalog.MaxWaiters, len(l.Waiters))
		}
		b.refused(request("balancer", bob), catalog.Queue, catalog.ErrQueueFull)
		b.refused(request("balancer", bob), catalog.Try, catalog.ErrNotFree)
		b.wantUntouched("locks", "balancer", func() { b.enter(last) })
		b.leave(holder.Session, grant(first, planted+1))
		b.enter(request("balancer", bob))
		b.refused(request("balancer", bob), catalog.Queue, catalog.ErrQueueFull)
	}},
	{"Enter_FullLine_InEveryMode", func(b *bench) {
		for name, kind := range map[string]struct {
			mode  catalog.Mode
			limit int32
		}{"exclusive": {}, "shared": {mode: catalog.Shared}, "permits": {catalog.Permit, 1}} {
			of := func(process string) catalog.Request {
				r := request(name, process)
				r.Mode, r.Limit = kind.mode, kind.limit
				return r
			}
			holder := of(alice)
			if kind.mode == catalog.Shared {
				holder.Mode = catalog.Exclusive
			}
			b.insert("locks", append(free(name), field("fence", planted)))
			b.enter(holder)
			list := bson.A{}
			for range catalog.MaxWaiters - 1 {
				list = append(list, plantedWaiter(of(bob)))
			}
			b.rewrite(name, field("waiters", list))
			if l := b.enter(of(bob)); len(l.Waiters) != catalog.MaxWaiters {
				b.Fatalf("%s: want %d waiters, got %d", name, catalog.MaxWaiters, len(l.Waiters))
			}
			b.refused(of(bob), catalog.Queue, catalog.ErrQueueFull)
			b.refused(of("new"), catalog.Queue, catalog.ErrQueueFull)
		}
	}},
	{"Enter_FreeWithAFullLine_TakesOneMore", func(b *bench) {
		list := bson.A{}
		for i := range catalog.MaxWaiters {
			list = append(list, plantedWaiter(request("balancer", process(i))))
		}
		b.insert("locks", append(free("balancer"), field("fence", planted), field("waiters", list)))
		if l := b.enter(request("balancer", bob)); !l.Held || len(l.Waiters) != catalog.MaxWaiters ||
			l.Process != process(0) {
			b.Errorf("%d waiters, held by %q", len(l.Waiters), l.Process)
		}
	}},
	{"Enter_FreeWithWaiters_TheFirstIsGranted", func(b *bench) {
		g := b.party("balancer", 3)
		b.rewrite("balancer", field("waiters", bson.A{plantedWaiter(g[0]), plantedWaiter(g[1])}))
		l := b.enter(g[2])
		if l.TS != g[0].TS || len(l.Waiters) != 2 || l.Waiters[1].TS != g[2].TS {
			b.Errorf("lock: %+v", l)
		}
		b.wantGrants(l.GrantsOf(g[0].Process), nil, grant(g[0], planted+1))
		b.wantDocument(b.document("locks", "balancer"), with(holding(g[0], planted+1, 1),
			field("waiters", bson.A{plantedWaiter(g[1]), waiting(g[2])})))
	}},
	{"Enter_TooLargeAFence_IsMalformed", func(b *bench) { // F8
		for _, fence := range []int64{1<<62 + 1, 1<<63 - 1} {
			name := label(fence)
			b.insert("locks", append(free(name), field("fence", fence)))
			for _, how := range []catalog.EnterMode{catalog.Queue, catalog.Try} {
				b.wantUntouched("locks", name, func() {
					_, err := On(b.Catalog).Enter(b.ctx, request(name, alice), how)
					b.wantMalformed(err, "locks", name, "fence")
				})
			}
		}
	}},
	{"Enter_MalformedDocument_SaysSoAndTouchesNothing", func(b *bench) { // F1 to F5, F8
		for i, f := range []bson.E{
			field("state", "0"), field("state", nil), field("state", true), field("state", 2.7),
			field("state", int32(-1)), field("state", bson.A{int32(0)}), field("fence", "7"),
			field("fence", 1.5), field("fence", int64(-1)), field("ts", nil), field("ts", "x"),
			field("process", int32(5)),
		} {
			name := label(i)
			b.insert("locks", with(held(name, alice), f))
			b.wantUntouched("locks", name, func() {
				_, err := On(b.Catalog).Enter(b.ctx, request(name, bob), catalog.Queue)
				b.wantMalformed(err, "locks", name, f.Key)
			})
		}
	}},
	{"Enter_AnyNameAndText_IsData", func(b *bench) { // G4
		for _, name := range []string{"$set", "a.b", "$$NOW", "$waiters.0", " ", "🔒", `{"$gt": ""}`} {
			for _, mode := range []catalog.Mode{catalog.Exclusive, catalog.Shared, catalog.Permit} {
				b.anyText(name+string(mode), mode)
			}
		}
	}},
	{"EnterTransaction_WithoutATransaction_IsErrNoTransactions", func(b *bench) {
		_, err := b.Catalog.EnterTransaction(b.ctx, request("balancer", alice))
		b.wantErr(err, catalog.ErrNoTransactions)
		if raw := b.document("locks", "balancer"); raw != nil {
			b.Errorf("created %v", raw)
		}
	}},
	{"Queue_EndedContext_WritesNothing", func(b *bench) {
		g := b.party("balancer", 3)
		b.enter(g[0])
		b.enter(g[1])
		ctx, cancel := context.WithCancel(b.ctx)
		cancel()
		b.wantUntouched("locks", "balancer", func() {
			_, err := On(b.Catalog).Enter(ctx, g[2], catalog.Queue)
			b.wantErr(err, context.Canceled)
			_, err = On(b.Catalog).Leave(ctx, g[0].Session)
			b.wantErr(err, context.Canceled)
			_, err = On(b.Catalog).Evict(ctx, dead(g[0]), "silent")
			b.wantErr(err, context.Canceled)
			_, err = On(b.Catalog).GrantNext(ctx, "balancer")
			b.wantErr(err, context.Canceled)
		})
	}},
}

// wantClockFence checks that the fence was raised to the server's clock in milliseconds.
func (b *bench) wantClockFence(fence int64) {
	b.Helper()
	if !b.nearMillis(fence) {
		b.Errorf("fence %d is not the server's clock", fence)
	}
}
