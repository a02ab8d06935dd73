package distlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Any waiter may be put first, and the release grants the lock to it; the others keep their order.
func TestGuard_PutFirst_ReleaseGrantsToIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		g := a.mustTry("a")
		turns := []<-chan turn{a.queue("a"), w.start(nil).queue("a"), w.start(nil).queue("a")}
		for _, n := range []int{1, 2} { // the later call counts
			assert.Must(t, g.PutFirst(t.Context(), w.lock("a").Waiters[n].TS))
		}
		w.release(g)
		for _, n := range []int{2, 1, 0} {
			w.release(w.wantTurn(turns[n]))
		}
	})
}

// What cannot be put first, and who cannot do it: each is a clear error, and nothing changes.
func TestGuard_PutFirst_Refused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g, shared := a.mustTry("a"), a.mustTry("s", distlock.Shared())
		next := b.queue("a")
		session := w.lock("a").Waiters[0].TS
		before := w.doc("a")
		wantErr(t, g.PutFirst(t.Context(), bson.NewObjectID()), distlock.ErrNotInLine)
		wantErr(t, g.PutFirst(t.Context(), g.Session()), distlock.ErrNotInLine)
		wantErr(t, shared.PutFirst(t.Context(), session), distlock.ErrBadOption)
		wantErr(t, (*distlock.TryGuard)(nil).PutFirst(t.Context(), session), distlock.ErrBadOption)
		if string(before) != string(w.doc("a")) || g.Err() != nil {
			t.Errorf("it changed something: %v, %v", w.doc("a"), g.Err())
		}
		a.store.Set(fault.On(fault.PutFirst, func(apply func() error) error {
			_ = apply()
			return fault.Lost(fault.PutFirst)
		}))
		wantErr(t, g.PutFirst(t.Context(), session), distlock.ErrOutcomeUnknown)
		a.store.Set(nil)
		assert.Value(b.Inspector().Break(t.Context(), "a", g.Fence(), "test"))(t)
		wantErr(t, g.PutFirst(t.Context(), session), distlock.ErrLockLost)
		w.release(w.wantTurn(next))
		w.release(shared)
		wantErr(t, shared.PutFirst(t.Context(), session), distlock.ErrReleased)
	})
}

// A watch is told the lock as it is and every change, a request to yield too, and at last why it
// ends.
func TestLock_Watch_EveryChange(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		var last error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for info, err := range b.Lock("a").Watch(ctx) {
				switch {
				case err != nil:
					last = err
				case info == nil:
					told = append(told, "nobody")
				default:
					told = append(told, info.Why+info.YieldWhy)
				}
			}
		}()
		interval := func() { time.Sleep(6 * time.Second); synctest.Wait() }
		interval()
		g := a.mustTry("a", distlock.Why("work"))
		interval()
		wantErr(t, b.Lock("b").RequestYield(t.Context(), "x"), distlock.ErrNotHeld)
		assert.NoErr(t, b.Lock("a").RequestYield(t.Context(), " for me"))
		interval()
		interval()
		w.release(g)
		interval()
		cancel()
		<-done
		wantErr(t, last, context.Canceled)
		want := []string{"nobody", "work", "work for me", "nobody"}
		assert.Slices(t, told, want, "told %q\nwant %q")
		for _, err := range b.Lock("").Watch(t.Context()) {
			wantErr(t, err, distlock.ErrBadName)
		}
		assert.NoErr(t, b.Close(t.Context()))
		wantErr(t, b.Lock("a").RequestYield(t.Context(), "x"), distlock.ErrClosed)
		for _, err := range b.Lock("a").Watch(t.Context()) {
			wantErr(t, err, distlock.ErrClosed)
		}
		if l, bad := catalog.ParseLock(w.doc("a")); bad != nil || l.Yield.By != "" {
			t.Errorf("a free lock shows a request: %+v, %v", l, bad)
		}
	})
}
