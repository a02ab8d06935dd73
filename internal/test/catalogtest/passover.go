package catalogtest

import (
	"fmt"
	"time"

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
		if !l.Waiters[0].Since.Equal(back.Since) {
			b.Errorf("it stands there since %v, want %v: it may lose its place again", l.Waiters[0].Since, back.Since)
		}
	}},
	{"Enter_WhoStoodBefore_FullLine_HasItsPlace", func(b *bench) {
		b.enter(request("balancer", alice))
		for i := range catalog.MaxWaiters {
			b.enter(request("balancer", fmt.Sprint("waiter ", i)))
		}
		back := request("balancer", bob)
		back.Since = b.look("balancer").Lock.Waiters[0].Since.Add(-time.Second)
		back.Behind = 5 // it had a turn of late
		if l := b.enter(back); len(l.Waiters) != catalog.MaxWaiters+1 || l.Waiters[0].TS != back.TS {
			b.Errorf("%d wait, the first is %s", len(l.Waiters), l.Waiters[0].Process)
		}
		for name, g := range map[string]catalog.Request{"a newcomer": request("balancer", "new"), "the last": back} {
			if g.Session = request("balancer", g.Process).Session; name == "the last" {
				g.Process, g.Since = "last", time.UnixMilli(4_000_000_000_000).UTC()
			}
			_, err := On(b.Catalog).Enter(b.ctx, g, catalog.Queue)
			b.wantErr(err, catalog.ErrQueueFull)
		}
		for i := range catalog.MaxWaiters - 1 {
			r := request("balancer", fmt.Sprint("back ", i))
			r.Since = back.Since
			b.enter(r)
		}
		one := request("balancer", "one too many")
		one.Since = back.Since
		_, err := On(b.Catalog).Enter(b.ctx, one, catalog.Queue)
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
