package integration_test

import (
	"testing"
	"time"

	"mongodlm/internal/clock"
)

// A wrong clock is off by a constant; its monotonic part is right.
type wrongClock struct {
	clock.Clock
	by time.Duration
}

func offBy(by time.Duration) clock.Clock { return wrongClock{clock.System(), by} }

func (c wrongClock) Now() clock.Reading {
	r := c.Clock.Now()
	r.Wall = r.Wall.Add(c.by)
	return r
}

// A1: a contender whose clock is ahead of the server's by more than the takeover time takes nothing
// from a live holder. A mongos of 2011 would have, by that clock alone.
func TestClocks_ContenderAhead_LeavesALiveHolderAlone(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder, contender := w.start(t, nil), w.startBy(t, offBy(20*time.Minute), shortTakeover)
		guard := w.mustTry(t, holder, name)
		w.untouched(t, name, func() {
			for end := time.Now().Add(holder.Config().Takeover * 5 / 4); time.Now().Before(end); {
				_, err := w.try(t, contender, name)
				heldError(t, err)
				time.Sleep(100 * time.Millisecond) // between two asks
			}
		})
		if err := guard.Err(); err != nil {
			t.Error(err)
		}
	})
}

// A1, A2: whatever the contender's clock says, a dead holder is taken by watching, not before the
// takeover time and not never. The shorter rule is off: the witnesses contradict each other.
func TestClocks_ContenderWrong_TakesADeadHolderByWatching(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{
		"Ahead": 20 * time.Minute, "Behind": -20 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, w *world) {
				d := w.plantHeld(t, w.pinged(t, 10*time.Second))
				m := w.startBy(t, offBy(by), shortTakeover)
				d.refused(t, m, m.Config().Takeover/2)
				d.taken(t, m, "watch")
			})
		})
	}
}

// The holder's own clock is wrong: its pings are stamped by the server, so it lives on, and a
// contender with a right clock takes nothing.
func TestClocks_HolderWrong_KeepsItsLock(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder := w.startBy(t, offBy(-48*time.Hour), nil)
		contender := w.start(t, shortTakeover)
		guard := w.mustTry(t, holder, name)
		w.untouched(t, name, func() {
			for end := time.Now().Add(holder.Config().Takeover * 5 / 4); time.Now().Before(end); {
				_, err := w.try(t, contender, name)
				heldError(t, err)
				time.Sleep(100 * time.Millisecond) // between two asks
			}
		})
		if err := guard.Err(); err != nil {
			t.Error(err)
		}
	})
}
