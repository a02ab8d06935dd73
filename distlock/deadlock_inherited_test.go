package distlock_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
)

// Two programs run under a lock each and start others, which have Managers of their own and want
// the lock of the other: the circle goes through four processes, and one of the inner ones is told.
func TestDeadlock_HeldByTheProcessesAround_OneIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		inA, inB := w.start(nil), w.start(nil)
		first := inA.queue("b", distlock.HoldingSessions(ga.Session()), distlock.WaitAtMost(time.Hour))
		time.Sleep(time.Minute)
		second := inB.queue("a", distlock.HoldingSessions(bson.NewObjectID(), gb.Session()),
			distlock.WaitAtMost(time.Hour))
		got := <-second
		if wantDeadlock(t, got.err); got.after < time.Second || got.after > 5*time.Second {
			t.Errorf("told after %v", got.after)
		}
		w.wantWaiting(first)
		w.release(gb)
		w.release(w.wantTurn(first))
		w.release(ga)
	})
}

// What one says of sessions harms nobody else: one that nobody holds counts for nothing, and who
// names the session of a stranger is told of the circle that this makes, not those in it.
func TestDeadlock_ForgedSessions_HarmNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, liar := w.start(nil), w.start(nil), w.start(nil)
		strange, own := a.mustTry("strange"), b.mustTry("own")
		honest := b.queueCtx(own.Context(), "strange")
		time.Sleep(time.Minute)
		idle := liar.queue("own", distlock.HoldingSessions(bson.NewObjectID(), bson.ObjectID{}))
		lies := liar.queue("own", distlock.HoldingSessions(strange.Session()))
		wantDeadlock(t, (<-lies).err)
		time.Sleep(time.Minute)
		w.wantWaiting(honest)
		w.wantWaiting(idle)
		w.release(strange)
		w.release(w.wantTurn(honest))
		w.release(own)
		w.release(w.wantTurn(idle))
	})
}
