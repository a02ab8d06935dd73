package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/metrics"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/metricstest"
)

// IsLeader returns false outside of a term, and after a loss or a resignation, even while the
// function still runs. It sends no command. The metrics also show the leader, and the number of
// terms.
func TestIsLeader_OnlyWhileItMayBeTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if election.New(nil, name).IsLeader() || (*election.Election)(nil).IsLeader() {
			t.Error("an election without a Manager leads")
		}
		var shown [2]metricstest.Kept
		var runs [2]*run
		for i := range runs {
			runs[i] = w.stand(w.Start(func(c *distlock.Config) {
				c.Observer = distlock.Observers(&shown[i], nil)
			}))
		}
		a, b := runs[0], runs[1]
		want := func(leaders [2]bool, terms [2]float64) {
			t.Helper()
			synctest.Wait() // wait for the release of a term that ends now
			for i, r := range runs {
				sent := r.p.Store.Total()
				leads, known := shown[i].Of(metrics.Leads, "election", name)
				n, _ := shown[i].Of(metrics.Terms, "election", name)
				if got := r.e.IsLeader(); got != leaders[i] || got != (leads == 1) || !known || n != terms[i] {
					t.Errorf("%d leads: %t, metrics %v with %v terms; want %t, %v", i, got, leads, n,
						leaders[i], terms[i])
				}
				assert.Equal(t, r.p.Store.Total()-sent, 0, "asking sent %d commands, want %d")
			}
		}
		old := a.wantLeader()
		want([2]bool{true, false}, [2]float64{1, 0})
		go func() { _ = a.e.Resign(context.Background()) }()
		<-old.ctx.Done()
		want([2]bool{}, [2]float64{1, 0}) // its context has ended, but the function still runs
		old.finish <- nil
		next := b.wantLeader()
		want([2]bool{false, true}, [2]float64{1, 1})
		w.kill(b.p)
		time.Sleep(takeoverTime - margin - pingTime - time.Second)
		want([2]bool{false, true}, [2]float64{1, 1})
		time.Sleep(pingTime + 2*time.Second)
		want([2]bool{}, [2]float64{1, 1}) // the lock is lost, but the function still runs
		again := a.wantLeader()
		want([2]bool{true, false}, [2]float64{2, 1})
		again.finish <- errors.New("ended by itself")
		<-again.ctx.Done()
		want([2]bool{}, [2]float64{2, 1})
		b.p.Heal()
		next.finish <- nil
	})
}

// IsLeader returns false immediately after a suspension, even before a timer fires.
func TestIsLeader_AfterASuspension_SaysNoAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := locktest.WrongClock(0)
		m := w.StartBy(c, nil)
		e := election.New(m.Manager, name)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() {
			over <- e.Run(ctx, func(ctx context.Context, _ *election.Leadership) error {
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Second)
		before := e.IsLeader()
		c.Step(takeoverTime)
		if after := e.IsLeader(); !before || after {
			t.Errorf("it leads: %t; after %v of suspension: %t", before, takeoverTime, after)
		}
		cancel()
		<-over
		_ = m.Close(context.Background())
	})
}
