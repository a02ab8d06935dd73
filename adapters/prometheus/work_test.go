package prometheus_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/singleton"
)

// A Collector exports metrics of the elections and loops of its Manager. A scrape sends no command
// for these metrics.
func TestCollector_Work_IsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, c := start(t, memcatalog.New(memcatalog.Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() {
			ended <- election.Run(ctx, m, "mayor", func(ctx context.Context, _ *election.Leadership) error {
				<-ctx.Done()
				return nil
			})
		}()
		go func() {
			ended <- singleton.Run(ctx, m, singleton.Loop{Name: "report",
				Store: singleton.NewMemoryStore(nil), Every: time.Minute,
				Do: func(context.Context, *distlock.TryGuard) error {
					time.Sleep(2 * time.Second)
					return nil
				}})
		}()
		time.Sleep(150 * time.Second)
		synctest.Wait() // a ping may be in progress
		sent := m.Stats().Commands
		_ = page(t, c)
		for kind, n := range m.Stats().Commands {
			if n != sent[kind] {
				t.Errorf("a scrape sends %s", kind)
			}
		}
		wantShown(t, c,
			`distlock_leads{kind="election",name="mayor"} 1`, `distlock_leads{kind="loop",name="report"} 1`,
			`distlock_terms_total{kind="election",name="mayor"} 1`,
			`distlock_rounds_total{kind="loop",name="report",outcome="done"} 3`,
			`distlock_rounds_total{kind="loop",name="report",outcome="failed"} 0`,
			`distlock_rounds_begun_total{kind="loop",name="report"} 3`,
			`distlock_round_seconds_bucket{kind="loop",name="report",le="1"} 0`,
			`distlock_round_seconds_bucket{kind="loop",name="report",le="2.5"} 3`,
			`distlock_round_ended_timestamp_seconds{kind="loop",name="report"} `)
		cancel()
		<-ended
		<-ended
		if text := page(t, c); strings.Contains(text, `distlock_leads{`) {
			t.Errorf("distlock_leads is exported after the end:\n%s", text)
		}
	})
}
