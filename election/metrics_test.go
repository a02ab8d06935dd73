package election_test

import (
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/test/metricstest"
)

// The metrics show the number of terms, and whether the process leads. They show the loss of a term
// immediately.
func TestRun_Observer_IsToldWhoLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		start := func() (*run, *metricstest.Kept) {
			k := &metricstest.Kept{}
			p := w.startWith(func(c *distlock.Config) { c.Observer = distlock.Observers(k, nil) })
			return w.stand(p), k
		}
		want := func(k *metricstest.Kept, leads, terms float64) {
			t.Helper()
			gotLeads, known := k.Of(metrics.Leads, "election", name)
			gotTerms, _ := k.Of(metrics.Terms, "election", name)
			if !known || gotLeads != leads || gotTerms != terms {
				t.Errorf("leads %v, terms %v, want %v, %v", gotLeads, gotTerms, leads, terms)
			}
		}
		a, ofA := start()
		b, ofB := start()
		first := a.wantLeader()
		want(ofA, 1, 1)
		want(ofB, 0, 0)
		a.p.kill()
		time.Sleep(takeoverTime - margin + time.Second)
		want(ofA, 0, 1) // its function continues
		second := b.wantLeader()
		want(ofB, 1, 1)
		a.p.heal()
		first.finish <- nil
		time.Sleep(2 * pingTime)
		second.finish <- nil
		a.wantLeader()
		want(ofA, 1, 2)
		want(ofB, 0, 1)
	})
}
