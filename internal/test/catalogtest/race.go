package catalogtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

const contenders = 16

func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// wantOneWinner checks that exactly one of the errors is nil, and that all others match the error
// losers.
func (b *bench) wantOneWinner(errs []error, losers error) {
	b.Helper()
	winners := 0
	for _, err := range errs {
		switch {
		case err == nil:
			winners++
		case !errors.Is(err, losers):
			b.Errorf("a loser got %v", err)
		}
	}
	assert.Equal(b, winners, 1, "want one winner, got %d (%d)")
}

func process(i int) string { return fmt.Sprintf("host-%d:1:1700000000:uuid", i) }

var raceCases = []testCase{
	{"ManyContenders_OneWinsEachRound", func(b *bench) {
		for round := range b.rounds(200, 20) {
			var winner catalog.Session
			var mu sync.Mutex // guards winner
			b.wantOneWinner(together(contenders, func(i int) error {
				r := request("balancer", process(i))
				l, err := On(b.Catalog).Acquire(b.ctx, r)
				if err == nil {
					mu.Lock()
					winner = l.Session()
					mu.Unlock()
				}
				return err
			}), catalog.ErrNotFree)
			l, err := b.Catalog.Read(b.ctx, "balancer")
			if err != nil || l.Session() != winner || l.Fence != int64(round+1) {
				b.Fatalf("round %d: %+v, %v", round, l, err)
			}
			assert.Must(b, b.release(winner))
		}
	}},
	{"Takeovers_OneWins", func(b *bench) {
		from := b.acquire(request("balancer", alice))
		for range 10 {
			holders := make([]catalog.Lock, 4)
			errs := together(len(holders), func(i int) (err error) {
				r := request("balancer", process(i))
				holders[i], err = On(b.Catalog).TakeOver(b.ctx, r, HolderOf(from))
				return err
			})
			b.wantOneWinner(errs, catalog.ErrNoMatch)
			for i, err := range errs {
				if err == nil {
					from = holders[i]
				}
			}
		}
		assert.Equal(b, from.Fence, 11, "fence: want 11, got %d (%d)")
	}},
	{"CondemnAndPing_NoPingAfterCondemn", func(b *bench) {
		for round := range 10 {
			id := process(round)
			p := b.ping(id)
			var condemned atomic.Bool
			together(2, func(i int) error {
				if i == 0 {
					err := On(b.Catalog).Condemn(b.ctx, id, &p, catalog.Condemnation{By: bob})
					condemned.Store(err == nil)
					return err
				}
				for n := range int64(3) {
					before := condemned.Load()
					if _, err := b.Catalog.Ping(b.ctx, beat(id, n+2)); err == nil && before {
						b.Error("a ping succeeded after a condemn")
					}
				}
				return nil
			})
			_, err := b.Catalog.Ping(b.ctx, beat(id, 5))
			if got := errors.Is(err, catalog.ErrCondemned); got != condemned.Load() {
				b.Errorf("condemned: %v, last ping: %v", condemned.Load(), err)
			}
		}
	}},
	{"OneWins", func(b *bench) {
		b.acquire(request("balancer", alice))
		b.queued("free", 3)
		b.rewrite("free", field("state", int32(0)))
		for what, race := range map[string]func(i int) error{
			"condemns of no ping": func(i int) error {
				return On(b.Catalog).Condemn(b.ctx, alice, nil, catalog.Condemnation{By: process(i)})
			},
			"breaks": func(int) error {
				return assert.Err(On(b.Catalog).Break(b.ctx, catalog.Session{Name: "balancer"}, 1, "x"))
			},
			"grants to the next": func(int) error {
				return assert.Err(On(b.Catalog).GrantNext(b.ctx, "free"))
			},
		} {
			b.Log(what)
			b.wantOneWinner(together(4, race), catalog.ErrNoMatch)
		}
	}},
	{"PingsOfOneID_LargestStays", func(b *bench) {
		b.ping(alice)
		for i, err := range together(8, func(i int) error {
			return assert.Err(b.Catalog.Ping(b.ctx, beat(alice, int64(i)+2)))
		}) {
			if err != nil && (i == 7 || !errors.Is(err, catalog.ErrTwin)) {
				b.Errorf("ping %d: %v", i+2, err)
			}
		}
		b.wantDocument(b.document("lockpings", alice), pinged(beat(alice, 9)))
	}},
	{"PingsOfTwins_OneWinsEachNumber", func(b *bench) { // A12, H2
		b.ping(alice)
		for n := int64(2); n < 8; n++ {
			b.wantOneWinner(together(4, func(i int) error {
				twin := beat(alice, n)
				twin.Local = twin.Local.Add(time.Duration(i) * time.Second)
				_, err := b.Catalog.Ping(b.ctx, twin)
				return err
			}), catalog.ErrTwin)
		}
	}},
	{"Prepares_AllSucceed", func(b *bench) { // J11
		for _, err := range together(8, func(int) error { return assert.Err(b.Catalog.Prepare(b.ctx)) }) {
			assert.NoErr(b, err)
		}
	}},
}
