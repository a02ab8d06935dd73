package election_test

import (
	"context"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

const lease = 2 * time.Minute

// If a leader with a lease hangs, another candidate leads although the process of the leader still
// pings. The old leader queues again when its function returns.
func TestLease_LeaderHangs_AnotherLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.stand(w.Start(nil), election.Lease(lease))
		b := w.stand(w.Start(nil), election.Lease(lease))
		old := a.wantLeader()
		for range 20 {
			time.Sleep(lease / 2)
			assert.Must(t, old.leader.Renew(t.Context()), "a leader that gets on")
		}
		b.wantNone()
		hung := time.Now()
		<-old.ctx.Done()
		if after := time.Since(hung); after > lease {
			t.Errorf("its context ends after %v", after)
		}
		wantErr(t, context.Cause(old.ctx), distlock.ErrLeaseExpired)
		b.wantNone() // no candidate leads during the margin
		next := b.wantLeader().obey()
		if after := time.Since(hung); after < lease || after > 2*lease+pingTime {
			t.Errorf("another leads %v after the last sign of life", after)
		}
		if a.e.IsLeader() || !b.e.IsLeader() || next.leader.Fence() <= old.leader.Fence() {
			t.Errorf("leaders %t, %t, fences %d, %d", a.e.IsLeader(), b.e.IsLeader(), old.leader.Fence(),
				next.leader.Fence())
		}
		a.wantNone()
		if s := a.p.Stats(); s.Failures != 0 || s.Processes != 0 {
			t.Errorf("its process is taken for dead: %+v", s)
		}
		old.finish <- nil
		time.Sleep(time.Minute)
		assert.Equal(t, len(w.lock().Waiters), 1, "%d are queued after the function, want %d")
	})
}

// If the server is too slow for the lease, candidates stay in the election until the server is
// quick again.
func TestLease_ServerSlowForAWhile_CandidatesStay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const short = 10 * time.Second
		var all []*run
		for range 3 {
			p := w.Start(nil)
			p.Store.Set(fault.Slow(3*time.Second, 0, fault.Renew))
			all = append(all, w.stand(p, election.Lease(short)))
		}
		time.Sleep(5 * time.Minute)
		for _, r := range all {
			r.wantNone()
			if closed(r.over) {
				t.Fatalf("it has left the election: %v", r.err)
			}
			r.p.Heal()
		}
		select {
		case <-all[0].started:
		case <-all[1].started:
		case <-all[2].started:
		case <-time.After(2 * time.Minute):
			t.Error("the server is quick again, and no candidate leads")
		}
	})
}
