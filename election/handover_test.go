package election_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Handover makes the named candidate lead, although another candidate is next. One write ends the
// old term and begins the new term.
func TestHandover_NamedCandidateLeads_NoGapNoOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		c := w.stand(w.Start(nil), election.Metadata("10.0.0.3:80"))
		d := w.stand(w.Start(nil))
		l := a.wantLeader().obey()
		seen := 0
		a.p.Store.Set(fault.On(fault.Release, func(apply func() error) error {
			before, err := w.lock(), apply()
			after := w.lock()
			seen++
			if l.leader.Err() == nil || !before.Held || !after.Held || after.Process != c.p.Process() {
				t.Errorf("released from %+v to %+v", before, after)
			}
			return err
		}))
		assert.Must(t, a.e.Handover(t.Context(), "10.0.0.3:80"))
		wantErr(t, context.Cause(l.ctx), election.ErrHandedOver)
		next := c.wantLeader().obey()
		if next.leader.Fence() != l.leader.Fence()+1 || seen != 1 {
			t.Errorf("fence %d after %d, %d releases", next.leader.Fence(), l.leader.Fence(), seen)
		}
		a.p.Heal()
		assert.Must(t, c.e.Handover(t.Context(), d.p.Process()))
		d.wantLeader().obey()
		b.wantNone()
		_ = d.quit()
		b.wantLeader().obey() // the others kept their places
	})
}

// If the named candidate has left, is silent or is unknown, Handover fails and the leader
// continues.
func TestHandover_CandidateGone_LeadershipKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.stand(w.Start(nil)), w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader().obey()
		w.kill(c.p)
		time.Sleep(2*pingTime + time.Second)
		_ = b.quit()
		for _, to := range []string{b.p.Process(), c.p.Process(), a.p.Process(), "nobody", ""} {
			wantErr(t, a.e.Handover(t.Context(), to), election.ErrNoCandidate)
		}
		a.p.Store.Set(fault.Refusing(fault.Look))
		wantErr(t, a.e.Handover(t.Context(), c.p.Process()), distlock.ErrUnavailable)
		wantErr(t, assert.Err(a.e.Candidates(t.Context())), distlock.ErrUnavailable)
		a.p.Store.Set(fault.On(fault.PutFirst, func(func() error) error {
			return catalog.ErrNoMatch // the candidate left after the read
		}))
		d := w.stand(w.Start(nil))
		wantErr(t, a.e.Handover(t.Context(), d.p.Process()), election.ErrNoCandidate)
		if l.ctx.Err() != nil || l.leader.Err() != nil {
			t.Errorf("the leader was disturbed: %v, %v", l.ctx.Err(), l.leader.Err())
		}
	})
}

// If the named candidate leaves the queue during Handover, the next candidate leads and Handover
// returns ErrNoCandidate.
func TestHandover_CandidateLeavesMeanwhile_NextLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.stand(w.Start(nil)), w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader()
		done := make(chan error, 1)
		go func() { done <- a.e.Handover(context.Background(), c.p.Process()) }()
		synctest.Wait()
		_ = c.quit()
		l.finish <- nil
		wantErr(t, <-done, election.ErrNoCandidate)
		b.wantLeader().obey()
		_ = b.quit()
		a.wantLeader().obey()
	})
}

// A request to yield reaches the current leader with its next read, and never reaches a later
// leader.
func TestRequestYield_ReachesThisLeaderOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.stand(w.Start(nil)), w.stand(w.Start(nil))
		l := a.wantLeader()
		asked := l.leader.YieldRequested()
		other := election.New(b.p.Manager, name)
		assert.Must(t, other.RequestYield(t.Context(), "a better one is there"))
		begun := time.Now()
		<-asked
		took, why := time.Since(begun), l.leader.YieldReason()
		if took > reading || why != "a better one is there" || l.ctx.Err() != nil {
			t.Errorf("requested after %v: %q", took, why)
		}
		l.finish <- nil
		next := b.wantLeader()
		quiet := next.leader.YieldRequested()
		time.Sleep(10 * reading)
		if closed(quiet) || next.leader.YieldReason() != "" {
			t.Error("the request reached the next leader, too")
		}
		assert.Must(t, other.RequestYield(t.Context(), "late"))
		next.finish <- nil // returns before the request is read
		last := a.wantLeader().obey()
		time.Sleep(10 * reading)
		if closed(quiet) || closed(last.leader.YieldRequested()) {
			t.Error("a request was received after its term")
		}
		_ = b.quit()
		_ = a.quit()
		wantErr(t, other.RequestYield(t.Context(), "x"), election.ErrNobody)
	})
}

// One of three candidates of a process withdraws. Neither the list of candidates nor the next
// leader shows its metadata.
func TestCandidates_OneOfAProcessWithdraws_MetadataIsOfTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first, p := w.stand(w.Start(nil)), w.Start(nil)
		leads := first.wantLeader()
		var all []*run
		for _, metadata := range []string{"b", "c", "d"} {
			all = append(all, w.stand(p, election.Metadata(metadata)))
		}
		_ = all[0].quit()
		time.Sleep(time.Minute)
		for _, one := range assert.Value(first.e.Candidates(t.Context()))(t) {
			if one.Metadata == "b" {
				t.Error("b is a candidate a minute after it withdrew")
			}
		}
		first.cancel()
		leads.finish <- nil
		time.Sleep(reading)
		now, err := first.e.Leader(t.Context())
		assert.Must(t, err)
		if now.Metadata != "c" && now.Metadata != "d" {
			t.Errorf("the leader has the metadata %q", now.Metadata)
		}
	})
}
