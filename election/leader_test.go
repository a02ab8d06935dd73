package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/election"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
)

// IsLeader returns false outside of a term, and after a loss or a resignation, even while the
// function still runs. It sends no command.
func TestIsLeader_OnlyWhileItMayBeTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if election.New(nil, name).IsLeader() || (*election.Election)(nil).IsLeader() {
			t.Error("an election without a Manager leads")
		}
		a, b := w.stand(w.start()), w.stand(w.start())
		want := func(ofA, ofB bool) {
			t.Helper()
			synctest.Wait() // wait for the release of a term that ends now
			sent := a.p.store.Total() + b.p.store.Total()
			if gotA, gotB := a.e.IsLeader(), b.e.IsLeader(); gotA != ofA || gotB != ofB {
				t.Errorf("leaders %t, %t; want %t, %t", gotA, gotB, ofA, ofB)
			}
			assert.Equal(t, a.p.store.Total()+b.p.store.Total()-sent, 0,
				"asking sent %d commands, want %d")
		}
		old := a.wantLeader()
		want(true, false)
		go func() { _ = a.e.Resign(context.Background()) }()
		<-old.ctx.Done()
		want(false, false) // its context has ended, but the function still runs
		old.finish <- nil
		next := b.wantLeader()
		want(false, true)
		b.p.kill()
		time.Sleep(takeoverTime - margin - pingTime - time.Second)
		want(false, true)
		time.Sleep(pingTime + 2*time.Second)
		want(false, false) // the lock is lost, but the function still runs
		again := a.wantLeader()
		want(true, false)
		again.finish <- errors.New("ended by itself")
		<-again.ctx.Done()
		want(false, false)
		b.p.heal()
		next.finish <- nil
	})
}

// IsLeader returns false immediately after a suspension, even before a timer fires.
func TestIsLeader_AfterASuspension_SaysNoAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := &suspended{Clock: clock.System()}
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
		c.forNanos.Store(int64(takeoverTime))
		if after := e.IsLeader(); !before || after {
			t.Errorf("it leads: %t; after %v of suspension: %t", before, takeoverTime, after)
		}
		cancel()
		<-over
		_ = m.Close(context.Background())
	})
}

// suspended is the clock of a machine after a suspension. Only the wall clock has advanced.
type suspended struct {
	clock.Clock
	forNanos atomic.Int64
}

func (s *suspended) Now() clock.Reading {
	r := s.Clock.Now()
	r.Wall = r.Wall.Add(time.Duration(s.forNanos.Load()))
	return r
}
