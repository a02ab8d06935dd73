package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/test/metricstest"
	"mongodlm/singleton"
)

// The metrics show every round, including failed rounds, and show whether the process holds the
// lock.
func TestRun_Observer_IsToldOfRounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var kept [2]metricstest.Kept
		n := 0
		for i := range kept {
			p := w.startWith(0, func(c *distlock.Config) { c.Observer = &kept[i] })
			p.loop(looping(time.Hour, func(context.Context, *distlock.TryGuard) error {
				time.Sleep(time.Minute)
				switch n++; n {
				case 2:
					return errors.New("failed")
				case 3:
					panic("ouch")
				}
				return nil
			}))
			p.slots(singleton.Slots{Name: "b", Schedule: singleton.Every(time.Hour),
				Do: func(context.Context, singleton.Slot) error { return nil }})
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Hour)
		want := func(i int, value float64, m *metrics.Metric, labels ...string) {
			t.Helper()
			if got, ok := kept[i].Of(m, labels...); !ok || got != value {
				t.Errorf("%d: %s %v is %v (%t), want %v", i, m.Name, labels, got, ok, value)
			}
		}
		want(0, 1, metrics.Leads, "loop", "a")
		want(1, 0, metrics.Leads, "loop", "a")
		want(0, 1, metrics.Terms, "slots", "b")
		want(0, float64(n), metrics.Begun, "loop", "a")
		want(0, 2, metrics.Rounds, "failed", "loop", "a")
		want(0, float64(n-2), metrics.Rounds, "done", "loop", "a")
		want(0, float64(n*60), metrics.RoundTime, "loop", "a")
		want(0, 6, metrics.Rounds, "done", "slots", "b")
		want(0, 0, metrics.Rounds, "failed", "slots", "b")
		want(1, 0, metrics.Begun, "loop", "a")
		at, _ := kept[0].Of(metrics.LastRound, "loop", "a")
		if ago := float64(time.Now().Unix()) - at; ago < 0 || ago > 2*3600 {
			t.Errorf("the last round ended at %v, %v seconds ago", at, ago)
		}
	})
}
