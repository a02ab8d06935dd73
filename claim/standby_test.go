package claim

import (
	"context"
	"testing"
	"time"
)

// One process of a queue looks after the rows of the dead, and the others wait for that one to die:
// no line stands still by it.
func TestRescue_OthersWait_NoLineStandsStill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var ps []*proc
		for range 3 {
			p := w.start(Config{})
			defer p.run(t, func(context.Context, *Row[item]) error { return nil })()
			ps = append(ps, p)
		}
		time.Sleep(2 * time.Hour)
		waiting := 0
		for _, p := range ps {
			s := p.m.Stats()
			if waiting += s.Waiting; s.OldestWait != 0 {
				t.Errorf("a process has waited for %v; that is no sign of a line that stands still", s.OldestWait)
			}
		}
		if waiting != 2 {
			t.Errorf("%d wait, want all but the one that looks after rows", waiting)
		}
	})
}
