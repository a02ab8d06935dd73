package distlock_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/fault"
)

func (p *proc) noPings() {
	p.Store.Set(fault.On(fault.Ping, func(func() error) error { return fault.Lost(fault.Ping) }))
}

// If the first waiter in the queue has missed two pings, a release grants the lock to the next
// waiter.
func TestLock_FirstWaiterDied_ReleaseGrantsToTheNext(t *testing.T) {
	for _, after := range []time.Duration{70 * time.Second, 2 * time.Minute, 10 * time.Minute} {
		for _, before := range []time.Duration{0, 7 * time.Second, 25 * time.Second} {
			runInBubble(t, after.String()+" "+before.String(), func(t *testing.T, w *world) {
				a, b, c, d := w.start(nil), w.start(nil), w.start(nil), w.start(nil)
				g := a.MustTry("a")
				b.queue("a")
				time.Sleep(time.Second)
				second, third := c.queue("a"), d.queue("a")
				time.Sleep(5*time.Minute + before)
				b.kill()
				time.Sleep(after)
				w.wantWaiting(second)
				w.release(g)
				released := time.Now()
				w.release(w.wantTurn(second))
				if took := time.Since(released); took > 6*time.Second {
					t.Errorf("the lock is granted to the dead for %v", took)
				}
				w.release(w.wantTurn(third))
			})
		}
	}
}

// If a living waiter misses pings, it loses its place in the queue. When it pings again, it gets
// the place back.
func TestLock_WaiterMissesPings_KeepsItsTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c, d := w.start(nil), w.start(nil), w.start(nil), w.start(nil)
		g := a.MustTry("a")
		slow := b.queue("a", distlock.Why("slow"))
		time.Sleep(time.Second)
		c.queue("a")
		time.Sleep(time.Second)
		d.queue("a")
		time.Sleep(5 * time.Minute)
		b.noPings()
		passedOver := false
		for range 200 {
			time.Sleep(time.Second)
			passedOver = passedOver || len(w.Lock("a").Waiters) == 2
		}
		if !passedOver {
			t.Fatal("it was never passed over: the test proves nothing")
		}
		b.Store.Set(nil)
		time.Sleep(2 * time.Minute)
		if l := w.Lock("a"); len(l.Waiters) != 3 || l.Waiters[0].Process != b.Process() {
			t.Errorf("it is not the first in the queue: %s", w.Document("a"))
		}
		w.release(g)
		w.release(w.wantTurn(slow))
	})
}

// After an outage of the server all pings are old, but no waiter is evicted.
func TestLock_ServerWasAway_NobodyIsPassedOver(t *testing.T) {
	for _, away := range []time.Duration{
		65 * time.Second, 70 * time.Second, 80 * time.Second, 95 * time.Second, 2 * time.Minute,
		3 * time.Minute,
		4 * time.Minute, 5 * time.Minute, 8 * time.Minute,
	} {
		runInBubble(t, away.String(), func(t *testing.T, w *world) {
			ps := make([]*proc, 6)
			for i := range ps {
				ps[i] = w.start(nil)
				time.Sleep(5 * time.Second)
			}
			ps[0].MustTry("a")
			for _, p := range ps[1:] {
				p.queue("a")
				time.Sleep(time.Second)
			}
			time.Sleep(5 * time.Minute)
			before := processes(w)
			for _, p := range ps {
				p.kill()
			}
			time.Sleep(away)
			for _, p := range ps {
				p.Store.Set(nil)
			}
			evicted := 0
			for range 300 {
				time.Sleep(time.Second)
				if !slices.Equal(before, processes(w)) {
					evicted++
				}
			}
			for _, p := range ps {
				evicted += p.Store.Count(fault.Evict)
			}
			if evicted > 0 {
				t.Errorf("a waiter was passed over: %s", w.Document("a"))
			}
		})
	}
}

func processes(w *world) []string {
	var ids []string
	for _, p := range w.Lock("a").Waiters {
		ids = append(ids, p.Process)
	}
	return ids
}

// If a waiter gets the lock while another process tries to evict it from the queue, the waiter
// keeps the lock.
func TestLock_GrantedWhileItIsPassedOver_KeepsTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.MustTry("a")
		first := b.queue("a")
		time.Sleep(time.Second)
		c.queue("a")
		time.Sleep(5 * time.Minute)
		var released atomic.Bool // the command may outlive its caller
		c.Store.Set(fault.On(fault.Evict, func(apply func() error) error {
			if released.CompareAndSwap(false, true) {
				w.release(g)
			}
			return apply()
		}))
		b.noPings()
		time.Sleep(2 * time.Minute)
		if !released.Load() {
			t.Fatal("no waiter was to be evicted: the test proves nothing")
		}
		got := w.wantTurn(first)
		if l := w.Lock("a"); l.TS != got.Session() {
			t.Errorf("it lost the lock: %s", w.Document("a"))
		}
	})
}

// After a failed ping, a process pings again soon. While pings continue to fail, the pauses grow up
// to the ping interval.
func TestPing_Fails_IsRepeatedSoonThenSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		time.Sleep(time.Hour)
		p.Store.Set(fault.Refusing(fault.Ping))
		before := p.Store.Count(fault.Ping)
		time.Sleep(2 * pingTime)
		soon := p.Store.Count(fault.Ping) - before
		time.Sleep(10 * pingTime)
		seldom := p.Store.Count(fault.Ping) - before - soon
		if soon < 6 || soon > 10 || seldom < 9 || seldom > 12 {
			t.Errorf("%d pings in two intervals and %d in the next ten", soon, seldom)
		}
	})
}
