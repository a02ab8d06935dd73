package distlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

type kindOf struct {
	catalog.Catalog
	kind catalog.Kind
}

func (k kindOf) Hello(ctx context.Context) (catalog.Server, error) {
	s, err := k.Catalog.Hello(ctx)
	s.Kind, s.Version = k.kind, "4.4.29"
	return s, err
}

func (w *world) startOn(kind catalog.Kind, change func(*distlock.Config)) *proc {
	return w.start(func(c *distlock.Config) {
		c.Catalog, c.Database = kindOf{c.Catalog, kind}, "distlock"
		if change != nil {
			change(c)
		}
	})
}

func (p *proc) lagging(by time.Duration) *proc {
	p.Store.Set(fault.Slow(0, by, fault.Notice))
	return p
}

// Two processes hold a lock in turn. The results are the durations of the hand-overs.
func (w *world) turns(a, b *proc, hold time.Duration, n int) (took []time.Duration) {
	w.T.Helper()
	g := a.MustTry("a")
	for i := range n {
		next := []*proc{b, a}[i%2].queue("a")
		time.Sleep(hold)
		start := time.Now()
		w.release(g)
		g = w.wantTurn(next)
		took = append(took, time.Since(start))
	}
	w.release(g)
	return took
}

// If the grant stream is late, waiters find their grants by polling, and the process logs one
// warning. On a replica set, the first hand-overs may take as long as the delay of the stream.
func TestLock_StreamLags_GrantsAreAskedFor(t *testing.T) {
	for kind, first := range map[catalog.Kind]time.Duration{
		catalog.Mongos: 0, catalog.ReplicaSet: 10 * time.Second,
	} {
		for _, hold := range []time.Duration{10 * time.Millisecond, 2 * time.Second, 10 * time.Minute} {
			runInBubble(t, fmt.Sprintf("%s, held for %v", kind, hold), func(t *testing.T, w *world) {
				var log assert.Log
				logs := func(c *distlock.Config) { c.Logger = zerolog.New(&log) }
				a := w.startOn(kind, logs).lagging(10 * time.Second)
				b := w.startOn(kind, nil).lagging(10 * time.Second)
				_ = w.turns(a, b, hold, 0)
				polled := a.Store.Count(fault.HeldOrFree)
				const n = 40
				took := w.turns(a, b, hold, n)
				polled = a.Store.Count(fault.HeldOrFree) - polled
				t.Logf("%v; a polled %d times", took, polled)
				most := max(12*time.Millisecond, min(hold/64*12/10, 6*time.Second)+2*time.Millisecond)
				for i, d := range took { // a late grant counts as a long turn for a while
					if i < 16 && d > max(first, most) || i >= 16 && d > most+most/8 {
						t.Errorf("hand-over %d took %v, want at most %v", i, d, most)
					}
				}
				if few := map[time.Duration]int{10 * time.Millisecond: 5, 2 * time.Second: 100,
					10 * time.Minute: 500}[hold] *
					n / 2; polled > few {
					t.Errorf("%d polls for %d turns, want at most %d", polled, n/2, few)
				}
				assert.Equal(t, a.Stats().Listening, "polling", "grants come by %q, want %q")
				synctest.Wait()
				if warned := strings.Count(log.String(), "by the grant stream"); warned != 1 {
					t.Errorf("%d warnings, want one: %s", warned, log.String())
				}
			})
		}
	}
}

// If a grant stream was always fast and then reports one grant very late, the waiter finds this
// grant by polling. It does so within 1.2 PollMax, even if pings and reads are rare.
func TestLock_PromptStreamIsLateOnce_GrantIsAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rare := func(c *distlock.Config) {
			c.Ping, c.Takeover, c.Margin = 10*time.Minute, 2*time.Hour, 0
			c.PollMax = 4 * time.Second
		}
		a, b := w.startOn(catalog.ReplicaSet, rare), w.startOn(catalog.ReplicaSet, rare)
		var late atomic.Bool
		b.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			err := apply()
			if call.Op == fault.Notice && late.Load() {
				time.Sleep(50 * time.Second)
			}
			return err
		})
		w.turns(a, b, time.Second, 20)
		assert.Equal(t, b.Stats().Listening, "stream", "grants come by %q, want %q")
		late.Store(true)
		g := a.MustTry("a")
		next := b.queue("a")
		time.Sleep(10 * time.Second)
		start := time.Now()
		w.release(g)
		w.release(w.wantTurn(next))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the grant was found after %v, want at most PollMax and a fifth", took)
		}
	})
}

// If a late grant stream becomes fast again, the process uses it again, even behind a mongos. From
// then on, a hand-over costs two commands and no poll.
func TestLock_StreamIsPromptAgain_NobodyAsks(t *testing.T) {
	for _, kind := range []catalog.Kind{catalog.Mongos, catalog.ReplicaSet} {
		runInBubble(t, string(kind), func(t *testing.T, w *world) {
			a := w.startOn(kind, nil).lagging(10 * time.Second)
			b := w.startOn(kind, nil).lagging(10 * time.Second)
			w.turns(a, b, time.Second, 20)
			a.Store.Set(nil)
			b.Store.Set(nil)
			time.Sleep(15 * time.Second)
			w.turns(a, b, 200*time.Millisecond, 60) // takes 12 s
			assert.Equal(t, a.Stats().Listening, "stream", "grants come by %q, want %q")
			sent := func() (n int) {
				for _, p := range []*proc{a, b} {
					for _, op := range []fault.Op{fault.HeldOrFree, fault.Enter, fault.Release} {
						n += p.Store.Count(op)
					}
				}
				return n
			}
			before := sent()
			w.turns(a, b, 200*time.Millisecond, 100)
			if n := sent() - before; n > 202+2 {
				t.Errorf("%d commands for 100 hand-overs", n)
			}
		})
	}
}

// During a long wait, a process on a replica set polls rarely. Behind a mongos, a new grant stream
// is not trusted yet, so the process polls as often as without a stream.
func TestLock_IdleWait_QuestionsAreFew(t *testing.T) {
	for kind, most := range map[catalog.Kind]int{
		catalog.ReplicaSet: 26, catalog.Mongos: 12*10 + 1 + 395,
	} {
		inBubbleAlone(t, func(t *testing.T, w *world) {
			a, b := w.startOn(kind, nil), w.startOn(kind, nil)
			g := a.MustTry("a")
			next := b.queue("a")
			time.Sleep(10 * time.Minute)
			if n := b.Store.Count(fault.HeldOrFree); n > most {
				t.Errorf("%s: %d polls in ten minutes, want at most %d", kind, n, most)
			}
			w.release(g)
			w.release(w.wantTurn(next))
			synctest.Wait()
		})
	}
}
