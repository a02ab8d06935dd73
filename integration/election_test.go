package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
)

// A stander is a candidate in an election. Its leader function returns when its context ends.
type stander struct {
	e     *election.Election
	leads chan *election.Leadership
	end   func()
}

func stand(t testing.TB, m *distlock.Manager, name string, opts ...election.Option) *stander {
	t.Helper()
	s := &stander{e: election.New(m, name), leads: make(chan *election.Leadership, 16)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.e.Run(ctx, func(ctx context.Context, l *election.Leadership) error {
			s.leads <- l
			<-ctx.Done()
			return ctx.Err()
		}, opts...)
	}()
	s.end = sync.OnceFunc(func() {
		cancel()
		<-over
	})
	t.Cleanup(s.end)
	return s
}

func (s *stander) wantLeader(t testing.TB) *election.Leadership {
	t.Helper()
	select {
	case l := <-s.leads:
		return l
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not lead")
		return nil
	}
}

// wantCandidates waits until the election has n candidates.
func wantCandidates(t testing.TB, e *election.Election, n int) []election.Candidate {
	t.Helper()
	var line []election.Candidate
	eventually(t, 30*time.Second, fmt.Sprint(n, " candidates"), func() bool {
		var err error
		if line, err = e.Candidates(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(line) == n
	})
	return line
}

// A resignation sends the same writes as the release of a lock with a waiter. Handover also sends
// two snapshots, one read and one compare-and-set. Through a mongos, a snapshot is two commands.
func TestElection_LeaderChange_Commands(t *testing.T) {
	forEachInTurn(t, func(t *testing.T, w *world) {
		plain, name := w.name("plain"), w.name("leader")
		var sent counter
		m := w.counted(t, &sent, slow)
		other, third := w.start(t, slow), w.start(t, slow)
		g := w.mustTry(t, m, plain)
		next := w.queue(t, other, plain)
		sent.reset()
		wantReleased(t, g)
		release := sent.writes()
		wantReleased(t, wantTurn(t, next))

		a := stand(t, m, name, election.Once())
		old := a.wantLeader(t)
		b := stand(t, other, name, election.Metadata("b"))
		wantCandidates(t, b.e, 1)
		begun := time.Now()
		sent.reset()
		assert.Must(t, a.e.Resign(t.Context()))
		resign := sent.writes()
		l := b.wantLeader(t)
		t.Logf("a release with a waiter: %d writes; a resignation: %d, the next led after %v", release,
			resign, time.Since(begun))
		if resign != release || l.Fence() != old.Fence()+1 {
			t.Errorf("a resignation: %d writes, a release %d; fence %d after %d", resign, release,
				l.Fence(), old.Fence())
		}
		a.end()

		again := stand(t, m, name, election.Once())
		wantCandidates(t, b.e, 1)
		b.end()
		old = again.wantLeader(t)
		stand(t, other, name, election.Metadata("first"))
		wantCandidates(t, again.e, 1)
		last := stand(t, third, name, election.Metadata("last"))
		wantCandidates(t, again.e, 2)
		sent.reset()
		assert.Must(t, again.e.Handover(t.Context(), "last"))
		writes, all := sent.writes(), sent.total()
		if l := last.wantLeader(t); l.Fence() != old.Fence()+1 {
			t.Errorf("fence %d after %d", l.Fence(), old.Fence())
		}
		t.Logf("a hand-over: %v", &sent)
		most := map[string]int{string(catalog.Mongos): 8}[m.Stats().Server.Kind]
		if m.Stats().Server.Kind != string(catalog.FerretDB) && (writes > 3 || all > max(most, 6)) {
			t.Errorf("a hand-over: %d commands, %d of them writes: %v", all, writes, &sent)
		}
	})
}
