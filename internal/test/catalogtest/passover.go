package catalogtest

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// wantLine demands that these wait, in this order.
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
		back.Behind = 5 // it had a turn of late
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
		late.Since = time.UnixMilli(4_000_000_000_000).UTC() // a clock went back
		b.wantLine(b.enter(late), g[1], g[2], late)
	}},
	{"Enter_WhoStoodBefore_FreeLock_HasIt", func(b *bench) {
		r := request("balancer", alice)
		r.Since = time.UnixMilli(1_000_000_000_000).UTC()
		if l, err := On(b.Catalog).Enter(b.ctx, r, catalog.Queue); err != nil || l.TS != r.TS {
			b.Errorf("%+v, %v", l, err)
		}
	}},
}
