package distlock_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// Readers share the lock, and a writer holds it alone. If a writer waits, a reader that arrives
// later waits behind the writer.
func TestShared_WriterWaits_NobodyStarves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		first := a.MustTry("a", distlock.Shared())
		second := w.wantTurn(b.queue("a", distlock.Shared()))
		if first.Fence() == second.Fence() || first.Session() == second.Session() {
			t.Error("two guards have one fence or session")
		}
		writer := c.queue("a")
		third, fourth := a.queue("a", distlock.Shared()), b.queue("a", distlock.Shared())
		for _, g := range []*distlock.TryGuard{first, second} {
			assert.NoErr(t, g.Verify(t.Context()), "Verify of a reader")
			w.wantWaiting(writer)
			w.release(g)
		}
		alone := w.wantTurn(writer)
		w.wantWaiting(third)
		w.release(alone)
		readers := []*distlock.TryGuard{w.wantTurn(third), w.wantTurn(fourth)}
		if a, b := readers[0].Fence(), readers[1].Fence(); a <= alone.Fence() || b <= a {
			t.Errorf("fences %d, %d after %d", a, b, alone.Fence())
		}
		for _, g := range readers {
			w.release(g)
		}
		if l := w.Lock("a"); l.Held || len(l.Waiters) != 0 {
			t.Errorf("in the end: %+v", l)
		}
	})
}

// A semaphore never has more holders than permits, and grants permits in the order of the queue. If
// a caller asks for another limit, it gets an error with the recorded limit. After the last
// release, a caller may set a new limit.
func TestPermits_LimitHolds_AnotherLimitIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		one, two := a.MustTry("a", distlock.Permits(2)), b.MustTry("a", distlock.Permits(2))
		_, err := a.Try("a", distlock.Permits(2))
		if e := held(t, err); e.Mode != "permit" {
			t.Errorf("error says %+v", e)
		}
		third, fourth := a.queue("a", distlock.Permits(2)), b.queue("a", distlock.Permits(2))
		for _, other := range []distlock.Option{
			distlock.Permits(3), distlock.Why("alone"), distlock.Shared(),
		} {
			_, err := b.Lock("a").Lock(t.Context(), other)
			var limit *distlock.PermitMismatchError
			if !errors.As(err, &limit) || limit.Recorded != 2 ||
				!errors.Is(err, distlock.ErrPermitMismatch) {
				t.Errorf("another limit or mode: %v", err)
			}
		}
		w.release(one)
		g3 := w.wantTurn(third)
		w.wantWaiting(fourth)
		w.release(g3)
		g4 := w.wantTurn(fourth)
		if !slices.IsSorted([]int64{one.Fence(), two.Fence(), g3.Fence(), g4.Fence()}) {
			t.Error("the fences do not rise")
		}
		w.release(two)
		w.release(g4)
		w.release(a.MustTry("a", distlock.Permits(5)))
		w.release(a.MustTry("a"))
	})
}

// Reenter returns a further guard of a held lock. The lock is free when each guard has been
// released once. A second release of a guard has no effect.
func TestReenter_CountsAsPostgreSQL(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		outer := a.MustTry("a")
		_, err := a.Try("a")
		if !held(t, err).Self {
			t.Error("entered again without the guard")
		}
		before := a.Store.Total()
		inner, err := outer.Reenter()
		assert.Must(t, err)
		if a.Store.Total() != before || inner.Fence() != outer.Fence() {
			t.Error("Reenter sent a command, or has another fence")
		}
		w.release(inner)
		w.release(inner) // a second release has no effect
		wantErr(t, inner.Err(), distlock.ErrReleased)
		if err := outer.Err(); err != nil || outer.Context().Err() != nil {
			t.Errorf("the outer guard: %v", err)
		}
		_, err = b.Try("a")
		wantErr(t, err, distlock.ErrHeld)
		again, err := outer.Reenter()
		assert.Must(t, err)
		w.release(outer) // released in the opposite order
		assert.NoErr(t, again.Err(), "the inner guard after the release of the outer")
		_, err = outer.Reenter()
		wantErr(t, err, distlock.ErrReleased)
		w.release(again)
		if again.Context().Err() == nil {
			t.Error("the context did not end with the last release")
		}
		w.release(b.MustTry("a"))
		_, err = again.Reenter()
		wantErr(t, err, distlock.ErrReleased)
	})
}

// LockAll acquires all locks or none. If one acquisition fails, LockAll releases the others.
func TestLockAll_OneFails_NoneIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		blocks := b.MustTry("m")
		_, err := a.LockAll(t.Context(), []string{"z", "m", "a"}, distlock.WaitAtMost(time.Minute))
		wantErr(t, err, distlock.ErrHeld)
		synctest.Wait() // until the background has released the lock
		for _, name := range []string{"a", "z"} {
			w.release(b.MustTry(name))
		}
		w.release(blocks)
		all := assert.Value(a.LockAll(t.Context(), []string{"z", "m", "a"}))(t)
		var names []string
		for _, g := range all.All() {
			names = append(names, g.Name())
		}
		assert.Slices(t, names, []string{"a", "m", "z"}, "guards of %v, want %v")
		if err := all.Release(); err != nil || all.Err() == nil || all.Context().Err() == nil {
			t.Errorf("Release: %v", err)
		}
		w.release(b.MustTry("m"))
		for _, names := range [][]string{nil, {"a", "a"}, {"a", ""}} {
			before := a.Store.Total()
			_, err := a.LockAll(t.Context(), names)
			if !errors.Is(err, distlock.ErrBadOption) && !errors.Is(err, distlock.ErrBadName) {
				t.Errorf("%q: %v", names, err)
			}
			if a.Store.Total() != before {
				t.Errorf("%q: a command was sent", names)
			}
		}
	})
}

// The methods Locks and Waiters of an Inspector list each holder and waiter with its data, and
// return errors for malformed documents. The method Break grants a lock to the next waiter.
func TestLocksAndWaiters_ShowModePlaceAndPing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		first := a.MustTry("$a.b", distlock.Shared(), distlock.Why("read"), distlock.Lease(time.Hour))
		b.MustTry("$a.b", distlock.Shared())
		time.Sleep(time.Minute)
		writer := c.queue("$a.b", distlock.Why("write"), distlock.Label("w"))
		second := b.queue("$a.b", distlock.Shared())
		w.release(a.MustTry("free"))
		assert.Must(t, w.Mem.Put(catalog.LocksCollection, bson.D{{Key: "_id", Value: "bad"}}))
		assert.Must(t, w.Mem.Put(catalog.LocksCollection,
			bson.D{{Key: "_id", Value: 7}, {Key: "state", Value: 0}}))
		time.Sleep(time.Second)
		var rows []distlock.LockInfo
		bad := 0
		for info, err := range b.Inspector().Locks(t.Context()) {
			if err != nil {
				wantErr(t, err, distlock.ErrMalformed)
				bad++
				continue
			}
			rows = append(rows, info)
		}
		assert.Equal(t, bad, 2, "%d malformed documents, want %d")
		if len(rows) != 3 || rows[0].Mode != "shared" || rows[0].Fence != first.Fence() ||
			rows[0].Self || !rows[1].Self || rows[1].Waiters != 2 || !rows[1].HasPing ||
			rows[0].Lease != time.Hour || rows[0].LeaseAge != 61*time.Second ||
			rows[1].Lease != 0 || rows[1].LeaseAge != -1 ||
			rows[2].Held || rows[2].Name != "free" || rows[2].Mode != "exclusive" {
			t.Errorf("locks %+v", rows)
		}
		var waiters []distlock.LockInfo
		for info, err := range a.Inspector().Waiters(t.Context()) {
			assert.Must(t, err)
			waiters = append(waiters, info)
		}
		if len(waiters) != 2 || waiters[0].Place != 1 || waiters[0].Why != "write" ||
			waiters[0].Mode != "exclusive" || waiters[0].Process != c.Process() || !waiters[0].HasPing ||
			waiters[0].PingAge < 0 || time.Since(waiters[0].Since) > 2*time.Second ||
			waiters[1].Mode != "shared" || waiters[1].Place != 2 || waiters[1].Name != "$a.b" {
			t.Errorf("waiters %+v", waiters)
		}
		for _, row := range rows[:2] {
			assert.NoErr(t, c.Break(t.Context(), row.Name, row.Fence, "test"), "Break")
		}
		g := w.wantTurn(writer)
		assert.Equal(t, g.TakeoverEvidence(), "broken: test", "evidence %q, want %q")
		wantErr(t, c.Break(t.Context(), "$a.b", first.Fence(), "again"), distlock.ErrFenceMismatch)
		w.release(g)
		w.release(w.wantTurn(second))
	})
}
