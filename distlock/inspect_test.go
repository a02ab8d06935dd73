package distlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// inspector returns an Inspector and the store that counts its commands.
func (w *world) inspector() (*distlock.Inspector, *fault.Catalog) {
	w.T.Helper()
	store := fault.Wrap(w.Mem)
	i := assert.Value(distlock.NewInspector(w.T.Context(), distlock.Config{Catalog: store}))(w.T)
	return i, store
}

// An Inspector sends no command before its first call. Holder sends one command.
func TestInspector_Reads_PingsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.MustTry("job", distlock.Why("work"))
		next := b.queue("job", distlock.Why("next"))
		w.wantWaiting(next)
		i, store := w.inspector()
		time.Sleep(time.Hour)
		assert.Equal(t, store.Total(), 0, "%d commands of an unused Inspector, want %d")
		holders, waiters, err := i.Holder(t.Context(), "job")
		if err != nil || store.Total() != 1 {
			t.Errorf("%v, %d commands, want 1", err, store.Total())
		}
		if len(holders) != 1 || !holders[0].Held || holders[0].Session != g.Session() ||
			holders[0].Place != 0 ||
			holders[0].Why != "work" || holders[0].Age < time.Hour || holders[0].PingEvery != pingTime ||
			holders[0].Takeover != takeoverTime || holders[0].BySession || holders[0].Waiters != 1 {
			t.Errorf("holders %+v", holders)
		}
		if len(waiters) != 1 || waiters[0].Held || waiters[0].Place != 1 || waiters[0].Why != "next" {
			t.Errorf("waiters %+v", waiters)
		}
		if now, err := i.Break(t.Context(), "job", g.Fence(), "stuck"); err != nil || len(now) != 1 ||
			!now[0].Held || now[0].Process != b.Process() {
			t.Errorf("Break: %+v, %v", now, err)
		}
		w.release(w.wantTurn(next))
		holders, waiters, err = i.Holder(t.Context(), "job")
		if err != nil || len(holders) != 1 || holders[0].Held || len(waiters) != 0 {
			t.Errorf("free: %+v, %+v, %v", holders, waiters, err)
		}
	})
}

// Holder returns a holder of the lock. It returns nil if the lock is free or was never acquired,
// and ErrBadName for an invalid name.
func TestHolder_OfOneLock_IsWhoHoldsItOrNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		want := func(name string, g *distlock.TryGuard) {
			t.Helper()
			h, err := b.Lock(name).Holder(t.Context())
			switch {
			case err != nil:
				t.Error(err)
			case g == nil && h != nil:
				t.Errorf("%q is held by %+v, want no holder", name, h)
			case g != nil && (h == nil || !h.Held || h.Session != g.Session() || h.Process != a.Process()):
				t.Errorf("%q: %+v, want %v", name, h, g.Session())
			}
		}
		want("job", nil)
		g := a.MustTry("job")
		want("job", g)
		w.release(g)
		want("job", nil)
		first, second := a.MustTry("read", distlock.Shared()), a.MustTry("read", distlock.Shared())
		want("read", first)
		w.release(first)
		want("read", second)
		wantErr(t, assert.Err(b.Lock("").Holder(t.Context())), distlock.ErrBadName)
	})
}

// For a missing lock, the method Holder of an Inspector returns no holders. For a malformed lock,
// it returns an error. After Close, the methods of an Inspector return ErrClosed.
func TestInspector_NothingToShow_SaysSo(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		i, _ := w.inspector()
		if holders, waiters, err := i.Holder(t.Context(), "none"); holders != nil || waiters != nil ||
			err != nil {
			t.Errorf("%v, %v, %v", holders, waiters, err)
		}
		err := w.Mem.Put(catalog.LocksCollection,
			bson.D{{Key: "_id", Value: "odd"}, {Key: "state", Value: "held"}})
		assert.Must(t, err)
		_, _, err = i.Holder(t.Context(), "odd")
		var bad *distlock.MalformedError
		if !errors.As(err, &bad) || bad.Field != "state" {
			t.Errorf("malformed: %v", err)
		}
		_, _, err = i.Holder(t.Context(), "")
		wantErr(t, err, distlock.ErrBadName)
		_, err = i.Break(t.Context(), "none", 1, "x")
		wantErr(t, err, distlock.ErrFenceMismatch)
		for range 2 {
			assert.NoErr(t, i.Close(t.Context()), "Close")
		}
		_, _, err = i.Holder(t.Context(), "none")
		wantErr(t, err, distlock.ErrClosed)
		_, err = i.Break(t.Context(), "none", 1, "x")
		wantErr(t, err, distlock.ErrClosed)
		for _, err := range i.Locks(t.Context()) {
			wantErr(t, err, distlock.ErrClosed)
		}
		_, err = distlock.NewInspector(t.Context(), distlock.Config{})
		wantErr(t, err, distlock.ErrConfig)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = distlock.NewInspector(ended, distlock.Config{Catalog: w.Mem})
		wantErr(t, err, context.Canceled)
	})
}

// PutFirst returns an error for a shared, lost, released or nil guard, and if the given waiter is
// not queued. The lock does not change.
func TestGuard_PutFirst_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g, shared := a.MustTry("a"), a.MustTry("s", distlock.Shared())
		next := b.queue("a")
		session := w.Lock("a").Waiters[0].TS
		before := w.Document("a")
		wantErr(t, g.PutFirst(t.Context(), bson.NewObjectID()), distlock.ErrNotQueued)
		wantErr(t, g.PutFirst(t.Context(), g.Session()), distlock.ErrNotQueued)
		wantErr(t, shared.PutFirst(t.Context(), session), distlock.ErrBadOption)
		wantErr(t, (*distlock.TryGuard)(nil).PutFirst(t.Context(), session), distlock.ErrBadOption)
		if string(before) != string(w.Document("a")) || g.Err() != nil {
			t.Errorf("it changed something: %v, %v", w.Document("a"), g.Err())
		}
		a.Store.Set(fault.Losing(fault.PutFirst))
		wantErr(t, g.PutFirst(t.Context(), session), distlock.ErrOutcomeUnknown)
		a.Store.Set(nil)
		assert.Value(b.Inspector().Break(t.Context(), "a", g.Fence(), "test"))(t)
		wantErr(t, g.PutFirst(t.Context(), session), distlock.ErrLockLost)
		w.release(w.wantTurn(next))
		w.release(shared)
		wantErr(t, shared.PutFirst(t.Context(), session), distlock.ErrReleased)
	})
}
