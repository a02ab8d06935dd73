package catalogtest

import (
	"time"

	"mongodlm/catalog"
)

// wantLine demands that these wait, in this order.
func (b *bench) wantLine(l catalog.Lock, want ...catalog.Request) {
	b.Helper()
	if len(l.Waiters) != len(want) {
		b.Fatalf("%d wait, want %d", len(l.Waiters), len(want))
	}
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
		grants, err := b.Catalog.Evict(b.ctx, dead, "silent")
		b.wantAwards(grants, err)
		b.wantLine(*b.look("balancer").Lock, g[2])
	}},
	{"Evict_WhoWaited_AndHoldsMeanwhile_TouchesNothing", func(b *bench) {
		g := b.inLine("balancer", 3)
		b.leave(g[0].Session, award(g[1], planted+2))
		dead := catalog.Holder{Session: g[1].Session, Process: g[1].Process, Waits: true}
		b.wantUntouched("locks", "balancer", func() {
			_, err := b.Catalog.Evict(b.ctx, dead, "silent")
			b.wantErr(err, catalog.ErrNoMatch)
		})
	}},
	{"Enter_WhoStoodBefore_ComesBeforeThoseWhoCameLater", func(b *bench) {
		g := b.inLine("balancer", 3)
		was := *b.look("balancer").Lock
		first := g[1]
		back := first
		back.Session = grant("balancer", back.Process).Session
		back.Since = was.Waiters[0].Since.Add(-time.Second)
		dead := catalog.Holder{Session: first.Session, Process: first.Process, Waits: true}
		if _, err := b.Catalog.Evict(b.ctx, dead, "silent"); err != nil {
			b.Fatal(err)
		}
		l := b.enter(back)
		b.wantLine(l, back, g[2])
		if !l.Waiters[0].Since.Equal(back.Since) {
			b.Errorf("it stands there since %v, want %v: it may lose its place again", l.Waiters[0].Since, back.Since)
		}
	}},
	{"Enter_WhoStoodBefore_NotBeforeThoseWhoCameEarlier", func(b *bench) {
		g := b.inLine("balancer", 3)
		late := grant("balancer", "late")
		late.Since = time.UnixMilli(4_000_000_000_000).UTC() // a clock went back
		b.wantLine(b.enter(late), g[1], g[2], late)
	}},
	{"Enter_WhoStoodBefore_FreeLock_HasIt", func(b *bench) {
		g := grant("balancer", alice)
		g.Since = time.UnixMilli(1_000_000_000_000).UTC()
		if l, err := b.Catalog.Enter(b.ctx, g, catalog.Queue); err != nil || l.TS != g.TS {
			b.Errorf("%+v, %v", l, err)
		}
	}},
}
