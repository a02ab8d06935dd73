package main

import (
	"io"
	"testing"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
)

// The balancers survive a kill when another balancer takes the lock over. They survive a stop
// when the stopped balancer detects its loss after it continues.
func TestFaults_AreSurvivedByTheirOwnEvents(t *testing.T) {
	t.Parallel()
	f := &faults{d: &demo{out: io.Discard, clock: clock.System()},
		plan: []fault{{kind: "kill", process: "a", number: 1}, {kind: "stop", process: "b", number: 2}}}
	for _, step := range []struct {
		kind     balancer.Kind
		number   int
		resumeAt time.Duration
		survived int
	}{
		{balancer.LostLock, 1, 0, 0}, {balancer.Entered, 2, 0, 0}, {balancer.TookOver, 2, 0, 1},
		{balancer.TookOver, 3, time.Hour, 1}, {balancer.LostLock, 2, time.Hour, 1}, {balancer.LostLock, 3, 0, 1},
		{balancer.TookOver, 3, 0, 1}, {balancer.LostLock, 2, 0, 2},
	} {
		f.resumeAt = step.resumeAt
		f.note(t.Context(), balancer.Event{Kind: step.kind, Number: step.number})
		survived := 0
		for _, one := range f.plan {
			if one.survived {
				survived++
			}
		}
		assert.Equal(t, survived, step.survived, string(step.kind)+": survived %d, want %d")
	}
	if f.next() != nil {
		t.Errorf("%+v is open", f.next())
	}
}
