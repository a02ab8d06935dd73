package integration_test

import (
	"testing"
	"time"

	"mongodlm/distlock"
)

// E1, E8: the primary steps down while a lock is held and another member is elected. The pings go
// on there, the lock survives, nobody else gets it, and what the guard promises still holds.
func TestStepDown_WhileHolding_TheLockSurvives(t *testing.T) {
	inTurn(t, named("replicaset"), func(t *testing.T, w *world) {
		longer := func(cfg *distlock.Config) { cfg.Takeover = 90 * time.Second } // than an election
		holder, contender := w.start(t, longer), w.start(t, longer)
		name := w.name("balancer")
		guard := w.mustTry(t, holder, name)
		_, err := w.try(t, contender, name)
		heldError(t, err)
		term := holder.Stats().Server.Primary
		if term == "" {
			t.Fatal("the primary's term is not known")
		}
		if err := w.d.set.StepDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.d.set.Primary(t.Context()); err != nil {
			t.Fatal(err)
		}
		pings := holder.Stats().Pings
		eventually(t, 60*time.Second, "the new primary is seen and pinged", func() bool {
			return holder.Stats().Server.Primary != term && contender.Stats().Server.Primary != term &&
				holder.Stats().Pings > pings+2
		})
		if err := guard.Err(); err != nil {
			t.Error(err)
		}
		if err := guard.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		w.untouched(t, name, func() {
			_, err := w.try(t, contender, name)
			heldError(t, err)
		})
		if err := guard.Release(); err != nil {
			t.Error(err)
		}
		if next := w.wait(t, contender, name); next.Fence() <= guard.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), guard.Fence())
		}
	})
}
