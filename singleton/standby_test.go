package singleton_test

import (
	"context"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/singleton"
)

// The processes that do not run a loop or a schedule wait for as long as the one lives that does:
// no line stands still by it.
func TestRun_FollowersWait_NoLineStandsStill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var ps []*process
		for range 3 {
			p := w.start(0)
			p.loop(singleton.Loop{Name: "a", Every: time.Minute,
				Do: func(context.Context, *distlock.TryGuard) error { return nil }})
			p.slots(singleton.Slots{Name: "b", Schedule: singleton.Every(time.Minute),
				Do: func(context.Context, singleton.Slot) error { return nil }})
			ps = append(ps, p)
		}
		time.Sleep(24 * time.Hour)
		waiting := 0
		for _, p := range ps {
			s := p.Stats()
			if waiting += s.Waiting; s.OldestWait != 0 {
				t.Errorf("a follower has waited for %v; that is no sign of a line that stands still", s.OldestWait)
			}
		}
		if waiting != 4 {
			t.Errorf("%d wait, want two followers of each", waiting)
		}
	})
}
