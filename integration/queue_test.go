package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// turnLimit is the time limit of a test for a grant, which usually takes a poll interval.
const turnLimit = 60 * time.Second

type turn struct {
	guard *distlock.TryGuard
	err   error
}

var labels atomic.Int64 // the number of the latest waiter

// queue calls Lock in the background and returns when the caller is queued. The end of the test
// ends the call.
func (w *world) queue(t testing.TB, m *distlock.Manager, name string, opts ...distlock.Option,
) <-chan turn {
	t.Helper()
	label := fmt.Sprintf("waiter-%d", labels.Add(1))
	done := make(chan turn, 1)
	go func() { // ends with the test
		g, err := m.Lock(name).Lock(t.Context(), append(slices.Clip(opts), distlock.Label(label))...)
		w.keep(g)
		done <- turn{g, err}
	}()
	eventually(t, turnLimit, "the caller is queued for "+name, func() bool {
		return slices.ContainsFunc(w.lock(t, name).Waiters, func(p catalog.Participant) bool {
			return strings.Contains(p.Who, ":"+label+":")
		})
	})
	return done
}

func wantTurn(t testing.TB, done <-chan turn) *distlock.TryGuard {
	t.Helper()
	select {
	case got := <-done:
		if got.err != nil {
			t.Fatalf("Lock: %v", got.err)
		}
		return got.guard
	case <-time.After(turnLimit):
		t.Fatalf("Lock has not returned after %v", turnLimit)
	}
	return nil
}

func wantWaiting(t testing.TB, done <-chan turn) {
	t.Helper()
	select {
	case got := <-done:
		t.Fatalf("Lock returned too early: %v, %v", got.guard, got.err)
	default:
	}
}

func wantReleased(t testing.TB, guards ...*distlock.TryGuard) {
	t.Helper()
	for _, g := range guards {
		if err := g.Release(); err != nil {
			t.Fatalf("Release of %q: %v", g.Name(), err)
		}
	}
}

// The database named config of a replica set has no change streams and no transactions. There,
// waiters find their grants by reading the lock documents, and LockInTransaction returns
// ErrNoTransactions.
func TestLock_DatabaseConfigOfReplicaSet_WaitsByReads(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset"), func(t *testing.T, own *world) {
		w := own.d.in(t, "config")
		name := w.name("balancer")
		a, b := w.start(t, nil), w.start(t, nil)
		if s := a.Stats().Server; s.ChangeStreams || s.Transactions {
			t.Fatalf("change streams %v, transactions %v", s.ChangeStreams, s.Transactions)
		}
		g := w.mustTry(t, a, name)
		wantTurns(t, g, w.queue(t, b, name), w.queue(t, a, name), w.queue(t, b, name))
		err := transact(t.Context(), w.d.app, func(ctx context.Context) error {
			return a.Lock(name).LockInTransaction(ctx)
		})
		wantErr(t, err, distlock.ErrNoTransactions)
	})
}
