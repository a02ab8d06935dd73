package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// turnLimit bounds how long a waiter may wait for what should come at once or within an interval.
const turnLimit = 60 * time.Second

// A turn is what a call of Lock in the background came to.
type turn struct {
	guard *distlock.TryGuard
	err   error
}

var labels atomic.Int64 // of waiters

// queue calls Lock in the background and returns when the caller stands in the line. The call ends
// with the test.
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
	eventually(t, turnLimit, "it stands in the line of "+name, func() bool {
		return slices.ContainsFunc(w.lock(t, name).Waiters, func(p catalog.Participant) bool {
			return strings.Contains(p.Who, ":"+label+":")
		})
	})
	return done
}

// wantTurn waits for the turn of a waiter.
func wantTurn(t testing.TB, done <-chan turn) *distlock.TryGuard {
	t.Helper()
	select {
	case got := <-done:
		if got.err != nil {
			t.Fatalf("Lock: %v", got.err)
		}
		return got.guard
	case <-time.After(turnLimit):
		t.Fatalf("it still waits after %v", turnLimit)
	}
	return nil
}

func wantWaiting(t testing.TB, done <-chan turn) {
	t.Helper()
	select {
	case got := <-done:
		t.Fatalf("it does not wait: %v, %v", got.guard, got.err)
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
