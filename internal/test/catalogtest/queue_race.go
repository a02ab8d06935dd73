package catalogtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
)

// rounds returns a number of rounds: the first argument for the memory store, the second for a
// server.
func (b *bench) rounds(memory, server int) int {
	b.Helper()
	if s, err := b.Catalog.Hello(b.ctx); err == nil && s.Kind == catalog.Memory {
		return memory
	}
	return server
}

func (b *bench) wantAllDone(errs []error) {
	b.Helper()
	for i, err := range errs {
		if err != nil {
			b.Fatalf("%d: %v", i, err)
		}
	}
}

// A relay delivers the grants of releases to the goroutines that wait for them.
type relay struct {
	b       *bench
	holders atomic.Int32
	limit   int32

	mu      sync.Mutex // guards the fields below
	waiting map[bson.ObjectID]chan int64
	granted map[bson.ObjectID]int64 // fences of the granted sessions
	fences  map[int64]bool
}

func (r *relay) expect(ts bson.ObjectID) chan int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := make(chan int64, 1)
	r.waiting[ts] = waiting
	return waiting
}

// deliver sends grants to the goroutines that wait for them. Several releases may return the same
// grant.
func (r *relay) deliver(grants []catalog.Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range grants {
		waiting := r.waiting[a.TS]
		delete(r.waiting, a.TS)
		switch {
		case waiting != nil:
			r.granted[a.TS] = a.Fence
			waiting <- a.Fence
		case r.granted[a.TS] != a.Fence:
			r.b.Errorf("granted twice, or to an unknown session: %+v", a)
		}
	}
}

func (r *relay) round(ctx context.Context, g catalog.Request) error {
	waiting := r.expect(g.TS)
	l, err := On(r.b.Catalog).Enter(ctx, g, catalog.Queue)
	if err != nil {
		return err
	}
	var fence int64
	if p, ok := l.HeldBy(g.TS); ok {
		fence = p.Fence
		r.mu.Lock()
		delete(r.waiting, g.TS)
		r.granted[g.TS] = fence
		r.mu.Unlock()
	} else {
		select {
		case fence = <-waiting:
		case <-ctx.Done():
			return fmt.Errorf("never granted: %w", ctx.Err())
		}
	}
	if n := r.holders.Add(1); n > r.limit {
		r.b.Errorf("%d holders at a time", n)
	}
	r.mu.Lock()
	if r.fences[fence] || fence <= planted {
		r.b.Errorf("fence %d is used twice or is invalid", fence)
	}
	r.fences[fence] = true
	r.mu.Unlock()
	r.holders.Add(-1)
	grants, err := On(r.b.Catalog).Leave(ctx, g.Session)
	r.deliver(grants)
	return err
}

func (b *bench) relayRace(mode catalog.Mode, limit int32) {
	b.Helper()
	rounds := b.rounds(50, 5)
	b.requests("balancer", 0)
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	r := &relay{
		b: b, limit: max(limit, 1), waiting: map[bson.ObjectID]chan int64{},
		granted: map[bson.ObjectID]int64{}, fences: map[int64]bool{},
	}
	b.wantAllDone(together(8, func(i int) error {
		for range rounds {
			g := request("balancer", process(i))
			g.Mode, g.Limit = mode, limit
			if err := r.round(ctx, g); err != nil {
				return err
			}
		}
		return nil
	}))
	l, err := b.Catalog.Read(b.ctx, "balancer")
	grants := int64(8 * rounds)
	if err != nil || l.Held || len(l.Waiters) > 0 || l.Fence != planted+grants {
		b.Errorf("at the end: %+v, %v", l, err)
	}
	if rev := b.revOf("balancer"); rev != 2*grants || int64(len(r.fences)) != grants {
		b.Errorf("want rev %d and %d fences, got %d and %d", 2*grants, grants, rev, len(r.fences))
	}
}

var queueRaceCases = []testCase{
	{"Race_OneSessionEnters_IsQueuedOnce", func(b *bench) {
		g := b.queued("balancer", 1)
		again := request("balancer", bob)
		b.wantAllDone(together(8, func(int) error {
			return assert.Err(On(b.Catalog).Enter(b.ctx, again, catalog.Queue))
		}))
		b.wantDocument(b.document("locks", "balancer"),
			with(holding(g[0], planted+1, 2), waiters(again)))
	}},
	{"Race_EnterAndLeave_NeverTwoHolders", func(b *bench) { b.relayRace(catalog.Exclusive, 0) }},
	{"Race_Permits_NeverMoreThanTheLimit", func(b *bench) { b.relayRace(catalog.Permit, 3) }},
	{"Race_LeavesAndEvictionsOfOneSession_OneWins", func(b *bench) {
		g := b.queued("balancer", 21)
		for i := range 20 {
			var mu sync.Mutex // guards grants
			var grants []catalog.Grant
			b.wantOneWinner(together(2, func(n int) error {
				var t catalog.Transition = transition.Leave{Session: g[i].Session}
				if n == 1 && i%2 == 1 {
					t = transition.Evict{Holder: dead(g[i])}
				}
				_, got, err := b.Catalog.Apply(b.ctx, t)
				mu.Lock()
				defer mu.Unlock()
				grants = append(grants, got...)
				return err
			}), catalog.ErrNoMatch)
			b.wantGrants(grants, nil, grant(g[i+1], planted+int64(i)+2))
		}
	}},
}
