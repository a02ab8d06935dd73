package distlock_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
)

// If Renew gets the context of a transaction, the renewal is part of the transaction. It takes
// effect with the commit, and the duration of the lease counts from the time at which the renewal
// was sent.
func TestInTransaction_RenewInside_CountsWithTheCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g := p.MustTry("a", distlock.Lease(lifeTime))
		begun, runs := time.Now(), 0
		var sent time.Time
		err := g.InTransaction(t.Context(), func(ctx context.Context) error {
			runs++
			for range 3 {
				time.Sleep(5 * time.Second)
				sent = time.Now()
				assert.NoErr(t, g.Renew(ctx), "renewal")
			}
			if n := w.Lock("a").Leases[0].Number; n != 1 || !g.Deadline().Equal(begun.Add(leaseHold)) {
				t.Errorf("before the commit: renewal %d is seen, deadline %v", n, g.Deadline().Sub(begun))
			}
			time.Sleep(time.Second)
			return nil
		})
		if err != nil || runs != 1 {
			t.Errorf("%d runs: %v", runs, err)
		}
		if n := w.Lock("a").Leases[0].Number; n != 4 || !g.Deadline().Equal(sent.Add(leaseHold)) {
			t.Errorf("renewal %d, deadline %v after its send, want 4 and %v", n, g.Deadline().Sub(sent),
				leaseHold)
		}
		waits := other.queue("a")
		synctest.Wait()
		runs = 0
		err = g.InTransaction(t.Context(), func(ctx context.Context) error {
			if runs++; runs == 1 {
				w.disturb(other)
			}
			return g.Renew(ctx)
		})
		if err != nil || runs != 2 {
			t.Errorf("beside a waiter: %d runs: %v", runs, err)
		}
		w.release(g)
		w.release(w.wantTurn(waits))
	})
}

func (w *world) disturb(p *proc) {
	w.T.Helper()
	assert.NoErr(w.T, p.Lock("a").RequestYield(w.T.Context(), "please"))
}

// If a transaction contains a renewal, and the given function fails or the reply to the commit is
// lost, the deadline of the guard does not change.
func TestInTransaction_RenewInside_NotCommitted_DeadlineStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a", distlock.Lease(lifeTime))
		deadline, mine := g.Deadline(), errors.New("mine")
		renew := func(end error) error {
			return g.InTransaction(t.Context(), func(ctx context.Context) error {
				time.Sleep(time.Second)
				return errors.Join(g.Renew(ctx), end)
			})
		}
		wantErr(t, renew(mine), mine)
		if !g.Deadline().Equal(deadline) || w.Lock("a").Leases[0].Number != 1 {
			t.Errorf("work failed: deadline %v later, %+v", g.Deadline().Sub(deadline), w.Lock("a").Leases)
		}
		p.Store.Set(fault.Losing(fault.Transact))
		wantErr(t, renew(nil), distlock.ErrOutcomeUnknown)
		p.Store.Set(nil)
		if !g.Deadline().Equal(deadline) {
			t.Errorf("outcome unknown: deadline %v later", g.Deadline().Sub(deadline))
		}
		if err := g.Renew(t.Context()); err != nil || !g.Deadline().After(deadline) {
			t.Errorf("afterwards: %v, deadline %v later", err, g.Deadline().Sub(deadline))
		}
	})
}

// If a holder hangs in a transaction that has written the lock document, other sessions are
// blocked. The server ends the transaction after its time limit, and another session takes the lock
// over.
func TestInTransaction_HangsWithTheLockWritten_IsTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g := p.MustTry("a", distlock.Lease(10*time.Second))
		runs, hang, done := 0, make(chan struct{}), make(chan error, 1)
		go func() {
			done <- g.InTransaction(t.Context(), func(context.Context) error {
				if runs++; runs == 1 {
					w.disturb(other)
					return nil
				}
				<-hang
				return nil
			})
		}()
		start := time.Now()
		next := assert.Value(other.Lock("a").Lock(t.Context()))(t)
		if took := time.Since(start); took < 10*time.Second || took > 60*time.Second+2*pingTime {
			t.Errorf("taken after %v", took)
		}
		wantErr(t, g.Err(), distlock.ErrLockLost)
		before := w.Document("a")
		close(hang)
		wantErr(t, <-done, distlock.ErrLockLost)
		if !bytes.Equal(w.Document("a"), before) {
			t.Errorf("the transaction was committed: %v", w.Document("a"))
		}
		w.release(next)
	})
}

// If the lock is taken over after the given function has run once, InTransaction does not run the
// function again.
func TestInTransaction_TakenBetweenTheRuns_WorkRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g, runs := p.MustTry("a"), 0
		err := g.InTransaction(t.Context(), func(ctx context.Context) error {
			runs++
			thief := catalog.Request{Session: catalog.Session{Name: "a", TS: bson.NewObjectID()},
				Process: other.Process()}
			_, err := catalogtest.On(w.Mem).TakeOver(t.Context(), thief, catalog.Holder{
				Session: catalog.Session{Name: "a", TS: g.Session()}, Process: g.Process()})
			return err
		})
		wantErr(t, err, distlock.ErrLockLost)
		assert.Equal(t, runs, 1, "%d runs, want %d")
	})
}
