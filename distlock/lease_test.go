package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
)

const (
	lifeTime  = time.Minute
	leaseHold = lifeTime - lifeTime/4
)

// A job that hangs loses its guard at the deadline of the lease, although the process of the job
// pings. A waiter acquires the lock soon after the lease has expired. The process keeps its other
// locks.
func TestLease_HungJob_LosesItsLockWhileItsProcessLives(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		other := a.MustTry("other")
		g := a.MustTry("a", distlock.Lease(lifeTime))
		acquired := time.Now()
		if want := acquired.Add(leaseHold); !g.Deadline().Equal(want) {
			t.Errorf("deadline %v, want %v", g.Deadline(), want)
		}
		waits := b.queue("a")
		time.Sleep(leaseHold - time.Millisecond)
		assert.Must(t, g.Err(), "lost early")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantErr(t, context.Cause(g.Context()), distlock.ErrLeaseExpired)
		wantErr(t, g.Err(), distlock.ErrLockLost)
		wantErr(t, g.Renew(t.Context()), distlock.ErrLockLost)
		got := w.ended(waits)
		if got.err != nil {
			t.Fatal(got.err)
		}
		if took := time.Since(acquired); took < lifeTime || took > lifeTime+pingTime {
			t.Errorf("taken %v after the renewal, want %v and a little", took, lifeTime)
		}
		if !strings.Contains(got.guard.TakeoverEvidence(), "lease") {
			t.Errorf("evidence %q", got.guard.TakeoverEvidence())
		}
		wantErr(t, g.Release(), distlock.ErrLockLost)
		assert.NoErr(t, got.guard.Verify(t.Context()), "the release of the lost guard")
		if err := other.Err(); err != nil || b.Store.Count(fault.Condemn) != 0 {
			t.Errorf("its process: %v, %d condemned", err, b.Store.Count(fault.Condemn))
		}
		assert.Equal(t, catalogLeases(w), 0,
			"the lease of the last holder is the next one's: %d, want %d")
		w.release(got.guard)
	})
}

// A caller that times out does not cancel the first renewal of its lease, so the outcome of that
// command is known. The lock goes to the next caller with the same lease, or is released.
func TestLease_CallTimesOutInFirstRenewal_CommandIsNotCancelled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		a.Store.Set(fault.Slow(0, time.Second, fault.Renew))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, ended := a.Lock("a").Lock(ctx, distlock.Lease(lifeTime))
		wantErr(t, ended, context.DeadlineExceeded)
		_, up := a.Lock("b").Lock(t.Context(), distlock.Lease(lifeTime),
			distlock.WaitAtMost(time.Second/2))
		wantErr(t, up, distlock.ErrUnavailable)
		began := time.Now()
		short, stop := context.WithTimeout(t.Context(), time.Second/2)
		defer stop()
		first := a.queueCtx(short, "c", distlock.Lease(lifeTime))
		g := assert.Value(a.Lock("c").Lock(t.Context(), distlock.Lease(lifeTime)))(t)
		assert.Equal(t, time.Since(began), time.Second, "the next caller waited for %v, want %v")
		wantErr(t, w.ended(first).err, context.DeadlineExceeded)
		w.release(g)
		for _, err := range []error{ended, up} {
			if errors.Is(err, distlock.ErrOutcomeUnknown) {
				t.Errorf("%v: the renewal was cancelled", err)
			}
		}
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			w.release(b.MustTry(name))
		}
	})
}

// The entry of a call that gave up serves no call with another lease.
func TestLease_EntryOfACallWithoutLease_IsNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		held := b.MustTry("a")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := a.queueCtx(ctx, "a")
		cancel()
		wantErr(t, w.ended(gaveUp).err, context.Canceled)
		waits := a.queue("a", distlock.Lease(lifeTime))
		w.release(held)
		g := w.wantTurn(waits)
		assert.NoErr(t, g.Renew(t.Context()))
		w.release(g)
	})
}

func catalogLeases(w *world) int { return len(w.Lock("a").Leases) }

// The duration of a lease counts from the time at which the process sends the renewal:
//   - A slow reply shortens the remaining time.
//   - If the reply arrives after the deadline, the renewal fails.
//   - An unknown outcome does not change the deadline.
func TestRenew_SlowOrLostReply_CountsFromTheSend(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		g := a.MustTry("a", distlock.Lease(lifeTime))
		a.Store.Set(fault.Slow(0, 4*time.Second, fault.Renew))
		sent := time.Now()
		assert.Must(t, g.Renew(t.Context()))
		if want := sent.Add(leaseHold); !g.Deadline().Equal(want) {
			t.Errorf("deadline %v, want %v after the send", g.Deadline(), leaseHold)
		}
		a.Store.Set(fault.Losing(fault.Renew))
		time.Sleep(time.Second)
		wantErr(t, g.Renew(t.Context()), distlock.ErrOutcomeUnknown)
		if want := sent.Add(leaseHold); !g.Deadline().Equal(want) {
			t.Errorf("an unknown outcome moved the deadline to %v", g.Deadline())
		}
		a.Store.Set(nil)
		sent = time.Now()
		if err := g.Renew(t.Context()); err != nil || !g.Deadline().Equal(sent.Add(leaseHold)) {
			t.Errorf("the renewal after it: %v, deadline %v", err, g.Deadline())
		}
		a.Store.Set(fault.Slow(0, 3*time.Second, fault.Renew))
		time.Sleep(leaseHold - time.Second)
		wantErr(t, g.Renew(t.Context()), distlock.ErrLeaseExpired)
		wantErr(t, g.Err(), distlock.ErrLeaseExpired)
	})
}

// If a holder renews its lease just before a contender evicts the holder, the eviction has no
// effect.
func TestLease_RenewedBetweenLookAndTakeover_Wins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		a.MustTry("a", distlock.Lease(lifeTime))
		holder := w.Lock("a").TS
		late := catalog.Renewal{
			Session: catalog.Session{Name: "a", TS: holder}, Number: 2, Life: lifeTime, Local: time.Now(),
		}
		tried := 0
		b.Store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Evict && tried == 0 {
				tried++
				if err := catalogtest.On(w.Mem).Renew(ctx, late); err != nil { // the late renewal
					t.Error(err)
				}
			}
			return apply()
		})
		start := time.Now()
		_, took := b.until("a", time.Second, 3*lifeTime)
		if tried != 1 || took < 2*lifeTime {
			t.Errorf("taken after %v since %v, and %d tries before", took, start, tried)
		}
	})
}

// The holders of a semaphore have separate leases. If one holder hangs, only that holder is
// evicted, and a waiter of the same process gets the permit.
func TestLease_Shared_OnlyTheOneThatHangsGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		hangs := a.MustTry("a", distlock.Permits(2), distlock.Lease(lifeTime))
		works := a.MustTry("a", distlock.Permits(2), distlock.Lease(lifeTime))
		waits := a.queue("a", distlock.Permits(2))
		for range 6 {
			time.Sleep(20 * time.Second)
			assert.Must(t, works.Renew(t.Context()))
		}
		select {
		case got := <-waits:
			w.release(got.guard)
		default:
			t.Error("the permit of the job that hangs was not taken")
		}
		wantErr(t, hangs.Err(), distlock.ErrLeaseExpired)
		assert.NoErr(t, works.Verify(t.Context()))
	})
}

// An acquisition and Renew return ErrBadOption for an invalid lease. If a lease is too short for
// the round trips to the server, the error contains the duration of a round trip.
func TestLease_BadUse_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		for _, d := range []time.Duration{0, -time.Second, time.Microsecond, catalog.MaxTakeover + 1} {
			wantErr(t, assert.Err(a.Try("a", distlock.Lease(d))), distlock.ErrBadOption)
		}
		wantErr(t, a.Lock("a").LockInTransaction(t.Context(), distlock.Lease(lifeTime)),
			distlock.ErrBadOption)
		plain := a.MustTry("plain")
		wantErr(t, plain.Renew(t.Context()), distlock.ErrBadOption)
		wantErr(t, (*distlock.TryGuard)(nil).Renew(t.Context()), distlock.ErrBadOption)
		a.Store.Set(fault.Slow(20*time.Millisecond, 0, fault.Renew))
		_, err := a.Try("a", distlock.Lease(70*time.Millisecond)) // trusted for 52.5 ms
		wantErr(t, err, distlock.ErrBadOption)
		if err == nil || !strings.Contains(err.Error(), "round trips of 20ms") {
			t.Errorf("no reason: %v", err)
		}
		synctest.Wait()
		w.wantFree("a")
		g := a.MustTry("a", distlock.Lease(90*time.Millisecond))
		again := assert.Value(g.Reenter())(t)
		assert.NoErr(t, errors.Join(again.Renew(t.Context()), again.Release(), g.Renew(t.Context()),
			g.Release()))
		wantErr(t, again.Renew(t.Context()), distlock.ErrReleased)
	})
}

// The duration of a new lease counts from the time at which the process sends the first renewal. If
// the outcome of this renewal is unknown, the process releases the lock.
func TestLease_FirstRenewal_SlowOrLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		a.Store.Set(fault.Losing(fault.Renew))
		wantErr(t, assert.Err(a.Try("a", distlock.Lease(lifeTime))), distlock.ErrOutcomeUnknown)
		synctest.Wait()
		w.wantFree("a")
		waits := a.queue("a", distlock.Lease(lifeTime))
		time.Sleep(10 * time.Second)
		w.wantWaiting(waits)
		a.Store.Set(nil)
		w.release(w.wantTurn(waits))
		a.Store.Set(fault.Slow(0, 4*time.Second, fault.Renew))
		sent := time.Now()
		if g := a.MustTry("a", distlock.Lease(lifeTime)); !g.Deadline().Equal(sent.Add(leaseHold)) {
			t.Errorf("deadline %v, want %v after the send", g.Deadline(), leaseHold)
		}
	})
}
