package distlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// quick sets a takeover time of two minutes, because tests with a full queue are slow.
func quick(c *distlock.Config) { c.Takeover, c.Ping = 2*time.Minute, 10*time.Second }

// fill starts as many processes as the queue has places, and queues one waiter in each. If p is
// killed, these processes are killed too. The returned function ends the waits.
func (w *world) fill(p *proc, name string, opts ...distlock.Option) (left func()) {
	w.T.Helper()
	var leave []func()
	for range catalog.MaxWaiters {
		fellow := w.start(func(c *distlock.Config) {
			c.Takeover, c.Ping = p.Config().Takeover, p.Config().Ping
		})
		p.fellows = append(p.fellows, fellow)
		leave = append(leave, w.queueWaiters(fellow, name, 1, opts))
	}
	assert.MustEqual(w.T, len(w.Lock(name).Waiters), catalog.MaxWaiters,
		"%d are queued, want a full queue (%d)")
	return func() {
		for _, left := range leave {
			left()
		}
	}
}

// While a queue is full of living waiters, a contender that waits for a place only reads. It does
// not try to enter the queue and condemns no process.
func TestLock_FullLineOfTheLiving_IsReadAndNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.MustTry("a", distlock.Why("all the time"))
		left := w.fill(a, "a")
		done := b.queue("a", distlock.WaitAtMost(5*time.Minute))
		before := b.Store.Count(fault.Enter)
		time.Sleep(5*time.Minute - time.Second)
		if n := b.Store.Count(fault.Enter) - before; n > 0 {
			t.Errorf("entered %d times while the queue was full", n)
		}
		got := <-done
		e := held(t, got.err)
		if got.after != 5*time.Minute || e.Process != a.Process() || e.Why != "all the time" ||
			e.Waiters != catalog.MaxWaiters || b.Store.Count(fault.Condemn) != 0 {
			t.Errorf("after %v: %+v", got.after, e)
		}
		w.release(g)
		left()
	})
}

// Callers whose number of permits differs from the lock's number must wait. Meanwhile a caller of
// the same process with the right number can acquire a free permit.
func TestLock_AnotherLimitWaited_OthersOfTheProcessEnter(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		dead, b := w.start(nil), w.start(nil)
		dead.MustTry("a", distlock.Permits(3))
		dead.kill()
		time.Sleep(4 * pingTime)
		waits := []<-chan turn{
			b.queue("a", distlock.Permits(5)), b.queue("a", distlock.Permits(5)),
		}
		g := w.wantTurn(b.queue("a", distlock.Permits(3)))
		for _, done := range waits {
			got := <-done // the permit of this process has a living holder
			wantErr(t, got.err, distlock.ErrPermitMismatch)
		}
		w.release(g)
	})
}

// If a place in a full queue becomes free, a process that waits for a place takes it within 1.25
// PollMax.
func TestLock_QueueGivesUp_TheNextFindsRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.MustTry("a")
		left := w.fill(b, "a")
		next := b.queue("a")
		time.Sleep(time.Minute)
		left()
		time.Sleep(b.Config().PollMax + b.Config().PollMax/4)
		synctest.Wait()
		if l := w.Lock("a"); len(l.Waiters) != 1 {
			t.Errorf("%d are queued, want the one that waited for room", len(l.Waiters))
		}
		w.release(g)
		w.release(w.wantTurn(next))
	})
}

// If a caller is refused and the lock document does not show why, the caller pauses before each new
// try.
func TestLock_RefusedWithoutAReasonThatShows_Pauses(t *testing.T) {
	for name, refusal := range map[string]error{
		"full": catalog.ErrQueueFull, "limit": &catalog.PermitMismatchError{Name: "a", Recorded: 3},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			w.release(p.MustTry("a"))
			p.Store.Set(fault.On(fault.Enter, func(apply func() error) error {
				if p.Store.Count(fault.Enter) > 100_000 {
					return errors.New("it does not pause")
				}
				return refusal
			}))
			done := p.queue("a", distlock.WaitAtMost(time.Hour))
			got := <-done
			if !errors.Is(got.err, distlock.ErrHeld) && !errors.Is(got.err, distlock.ErrPermitMismatch) ||
				got.after != time.Hour {
				t.Errorf("after %v: %v", got.after, got.err)
			}
			if n := p.Store.Count(fault.Enter); n > 2_500 {
				t.Errorf("it entered %d times in an hour", n)
			}
		})
	}
}
