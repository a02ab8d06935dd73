package singleton_test

import (
	"context"
	"testing"
	"time"

	"mongodlm/singleton"
)

// Processes that wait while another process runs the loop or schedule do not count in
// Stats.OldestWait.
func TestRun_FollowersWait_NoLineStandsStill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var ps []*process
		for range 3 {
			p := w.start(0)
			p.runs(singleton.KindLoop, tenMinutes, nothing)
			p.slots(singleton.Slots{Name: "b", Schedule: singleton.Every(tenMinutes),
				Do: func(context.Context, singleton.Slot) error { return nil }})
			ps = append(ps, p)
		}
		time.Sleep(24 * time.Hour)
		waiting := 0
		for _, p := range ps {
			s := p.Stats()
			if waiting += s.Waiting; s.OldestWait != 0 {
				t.Errorf("a follower has waited for %v, which says that a line stands still", s.OldestWait)
			}
		}
		if waiting != 4 {
			t.Errorf("%d wait, want two followers of each", waiting)
		}
	})
}
