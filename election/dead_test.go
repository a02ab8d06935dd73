package election_test

import (
	"fmt"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
)

// When a term ends, a candidate that has missed two pings is passed over. A candidate that died
// more recently is elected, and is replaced after the takeover time.
func TestElection_NextInLineIsDead_IsPassedOver(t *testing.T) {
	ways := map[string]func(t *testing.T, a, c *run) error{
		"resign": func(t *testing.T, a, _ *run) error { return a.e.Resign(t.Context()) },
		"hand over": func(t *testing.T, a, c *run) error {
			return a.e.Handover(t.Context(), c.p.Process())
		},
		"leave": func(_ *testing.T, a, _ *run) error { return a.quit() },
	}
	for how, end := range ways {
		for _, before := range []time.Duration{
			time.Second, 10 * time.Second, 70 * time.Second, 81 * time.Second, 2 * time.Minute, time.Hour,
		} {
			inBubbleSub(t, fmt.Sprint(how, " ", before), func(t *testing.T, w *world) {
				a, b, c := w.stand(w.Start(nil)), w.stand(w.Start(nil)), w.stand(w.Start(nil))
				a.wantLeader().obey()
				time.Sleep(17 * time.Minute)
				stop := watch(c.e)
				w.kill(b.p)
				time.Sleep(before)
				bound := reading // a release may wait for a read of the waiters
				if before < 2*pingTime && how != "hand over" {
					bound = takeoverTime + pingTime + time.Minute
				}
				left := time.Now()
				assert.NoErr(t, end(t, a, c))
				_ = a.quit()
				c.wantLeader().obey()
				if took := time.Since(left); took > bound {
					t.Errorf("a living candidate leads after %v", took)
				}
				time.Sleep(reading)
				leaders, _ := stop()
				for _, l := range leaders {
					if l.Process == b.p.Process() && bound == reading {
						t.Error("an observer received a dead candidate as the leader")
					}
				}
				if b.led.Load() {
					t.Error("it leads")
				}
			})
		}
	}
}
