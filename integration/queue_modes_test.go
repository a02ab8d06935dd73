package integration_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"mongodlm/distlock"
)

// Readers share and a writer is alone; a reader that comes after a waiting writer waits behind it.
func TestShared_WriterWaits_NobodyStarves(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		a, b, c := w.start(t, calm), w.start(t, calm), w.start(t, calm)
		one, err := w.try(t, a, name, distlock.Shared())
		if err != nil {
			t.Fatal(err)
		}
		two, err := w.try(t, b, name, distlock.Shared())
		if err != nil {
			t.Fatalf("a second reader: %v", err)
		}
		if one.Fence() >= two.Fence() {
			t.Errorf("fences %d, %d", one.Fence(), two.Fence())
		}
		writer := w.queue(t, c, name)
		three, four := w.queue(t, a, name, distlock.Shared()), w.queue(t, b, name, distlock.Shared())
		_, err = w.try(t, b, name, distlock.Shared())
		wantErr(t, err, distlock.ErrHeld)
		wantReleased(t, one)
		if err := two.Verify(t.Context()); err != nil {
			t.Errorf("the other reader: %v", err)
		}
		wantWaiting(t, writer)
		wantReleased(t, two)
		alone := wantTurn(t, writer)
		wantWaiting(t, three)
		wantWaiting(t, four)
		wantReleased(t, alone)
		wantReleased(t, wantTurn(t, three), wantTurn(t, four))
		if l := w.lock(t, name); l.Held || len(l.Waiters) != 0 || len(l.Sharers) != 0 {
			t.Errorf("in the end: %+v", l)
		}
	})
}

// census counts who is inside, by the guards alone.
type census struct{ readers, writers, most atomic.Int32 }

func (c *census) enter(t testing.TB, writes bool) (leave func()) {
	t.Helper()
	if writes {
		if n, r := c.writers.Add(1), c.readers.Load(); n != 1 || r != 0 {
			t.Errorf("%d writers beside %d readers", n, r)
		}
		return func() { c.writers.Add(-1) }
	}
	n := c.readers.Add(1)
	if writers := c.writers.Load(); writers != 0 {
		t.Errorf("%d readers beside %d writers", n, writers)
	}
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	return func() { c.readers.Add(-1) }
}

// Readers and writers of three processes, all at once: a writer is never beside anybody, and all
// have their turns.
func TestShared_ReadersAndWriters_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		managers := []*distlock.Manager{w.start(t, calm), w.start(t, calm), w.start(t, calm)}
		var in census
		w.together(t, 9, 4, func(ctx context.Context, i int) error {
			writes := i%3 == 0
			opts := []distlock.Option{distlock.Holding()}
			if !writes {
				opts = append(opts, distlock.Shared())
			}
			return managers[i/3].Do(ctx, name, func(ctx context.Context, g *distlock.TryGuard) error {
				leave := in.enter(t, writes)
				defer leave()
				return g.Verify(ctx)
			}, opts...)
		})
		t.Logf("at most %d readers at once", in.most.Load())
	})
}

// At most as many guards as there are permits; another number is refused while they are in use.
func TestPermits_NineUsersOfThree_LimitHolds(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		managers := []*distlock.Manager{w.start(t, calm), w.start(t, calm), w.start(t, calm)}
		var inside atomic.Int32
		w.together(t, 9, 3, func(ctx context.Context, i int) error {
			return managers[i%3].Do(ctx, name, func(ctx context.Context, g *distlock.TryGuard) error {
				if n := inside.Add(1); n > 3 {
					t.Errorf("%d hold one of three permits", n)
				}
				defer inside.Add(-1)
				return g.Verify(ctx)
			}, distlock.Permits(3), distlock.Holding())
		})
		one, err := w.try(t, managers[0], name, distlock.Permits(2))
		if err != nil {
			t.Fatalf("another number when nobody uses them: %v", err)
		}
		for _, other := range []distlock.Option{
			distlock.Permits(3), distlock.Shared(), distlock.Why("alone"),
		} {
			_, err := managers[1].Lock(name).Lock(t.Context(), other, distlock.WaitAtMost(turnLimit))
			var limit *distlock.PermitMismatchError
			if !errors.As(err, &limit) || limit.Recorded != 2 {
				t.Errorf("asked otherwise: %v", err)
			}
		}
		two, err := w.try(t, managers[1], name, distlock.Permits(2))
		if err != nil {
			t.Fatal(err)
		}
		third := w.queue(t, managers[2], name, distlock.Permits(2))
		wantReleased(t, one)
		wantReleased(t, wantTurn(t, third), two)
	})
}

// together runs a number of users, each some rounds, all at once.
func (w *world) together(t *testing.T, users, rounds int, use func(context.Context, int) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*turnLimit)
	defer cancel()
	var running sync.WaitGroup
	for i := range users {
		running.Go(func() {
			for round := range rounds {
				if err := use(ctx, i); err != nil {
					t.Errorf("user %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	running.Wait()
}

// Four users take the same three locks, named in all orders, all at once: none of them waits for
// ever, and each lock has one holder at a time.
func TestLockAll_FourUsersInAllOrders_NoDeadlock(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		names := []string{w.name("a"), w.name("b"), w.name("c")}
		orders := [][]string{
			{names[0], names[1], names[2]}, {names[2], names[1], names[0]},
			{names[1], names[2]}, {names[2], names[0]},
		}
		var inside [3]atomic.Int32
		managers := []*distlock.Manager{
			w.start(t, calm), w.start(t, calm), w.start(t, calm), w.start(t, calm),
		}
		w.together(t, 4, 4, func(ctx context.Context, i int) error {
			all, err := managers[i].LockAll(ctx, orders[i])
			if err != nil {
				return err
			}
			for _, g := range all.All() {
				at := slices.Index(names, g.Name())
				if n := inside[at].Add(1); n != 1 {
					t.Errorf("%d hold %s", n, g.Name())
				}
			}
			err = all.Err()
			for _, g := range all.All() {
				inside[slices.Index(names, g.Name())].Add(-1)
			}
			return errors.Join(err, all.Release())
		})
		for _, name := range names {
			if l := w.lock(t, name); l.Held || len(l.Waiters) != 0 {
				t.Errorf("in the end: %+v", l)
			}
		}
	})
}

// A lock that was acquired twice by its guard is handed over by the second release, not by the
// first.
func TestReenter_ReleasedOnce_StaysHeld(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		a, b := w.start(t, calm), w.start(t, calm)
		outer := w.mustTry(t, a, name)
		inner, err := outer.Reenter()
		if err != nil {
			t.Fatal(err)
		}
		next := w.queue(t, b, name)
		w.untouched(t, name, func() { wantReleased(t, inner) })
		if err := outer.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		wantWaiting(t, next)
		wantReleased(t, outer)
		g := wantTurn(t, next)
		if g.Fence() != outer.Fence()+1 {
			t.Errorf("fence %d after %d", g.Fence(), outer.Fence())
		}
		wantReleased(t, g)
	})
}
