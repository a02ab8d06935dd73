package election_test

import (
	"testing"
	"time"
)

// Candidates that wait for a living leader do not count in Stats.OldestWait.
func TestRun_CandidatesWait_NoLineStandsStill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		leader, candidate, third := w.start(), w.start(), w.start()
		w.stand(leader).wantLeader()
		w.stand(candidate).wantNone()
		w.stand(third).wantNone()
		time.Sleep(24 * time.Hour)
		for _, p := range []*proc{leader, candidate, third} {
			if s := p.Stats(); s.OldestWait != 0 {
				t.Errorf("OldestWait is %v, although only candidates wait", s.OldestWait)
			}
		}
		if s := candidate.Stats(); s.Waiting != 1 {
			t.Errorf("%d calls wait, want 1", s.Waiting)
		}
	})
}
