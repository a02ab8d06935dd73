package election_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/test/assert"
)

// received contains the leaders that OnNewLeader reported to one candidate.
type received struct {
	mu  sync.Mutex // guards the field all
	all []election.Leader
}

func (n *received) note(l election.Leader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, l)
}

func (n *received) of() (by []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.all {
		by = append(by, l.Metadata)
	}
	return by
}

// Each new leader is reported once to every candidate, and also to the leader itself.
func TestOnNewLeader_AllAreToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var runs []*run
		var heard []*received
		for _, who := range []string{"a", "b", "c"} {
			n := &received{}
			heard = append(heard, n)
			runs = append(runs, w.stand(w.Start(nil), election.Metadata(who), election.OnNewLeader(n.note)))
			time.Sleep(time.Second)
		}
		want := func(who ...string) {
			t.Helper()
			time.Sleep(reading)
			for i, n := range heard {
				if got := n.of(); !slices.Equal(got, who) {
					t.Errorf("%d received %q, want %q", i, got, who)
				}
			}
		}
		l := runs[0].wantLeader()
		want("a")
		assert.Must(t, runs[1].e.RequestYield(t.Context(), "please"))
		want("a")
		w.kill(runs[2].p)
		time.Sleep(2 * pingTime)
		runs[2].p.Heal()
		time.Sleep(2 * pingTime)
		want("a")
		l.finish <- nil
		runs[1].wantLeader()
		want("a", "b")
		all := heard[2].all
		if all[1].Fence <= all[0].Fence || all[1].Nobody || all[1].Process == "" {
			t.Errorf("received %+v", all)
		}
		_ = runs[2].quit()
		_ = runs[1].quit()
		runs[0].wantLeader()
		time.Sleep(reading)
		if got := heard[2].of(); len(got) != 2 {
			t.Errorf("received after Run has returned: %q", got)
		}
	})
}

// If the function given to OnNewLeader hangs or panics, the candidate can still lead and resign.
func TestOnNewLeader_HangsOrPanics_StopsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log assert.Log
		hang := make(chan struct{})
		defer close(hang)
		a := w.stand(w.Start(nil), election.OnNewLeader(func(election.Leader) { <-hang }))
		n := &received{}
		b := w.stand(w.Start(func(c *distlock.Config) { c.Logger = zerolog.New(&log) }),
			election.OnNewLeader(func(l election.Leader) { n.note(l); panic("ouch") }))
		first := a.wantLeader().obey()
		time.Sleep(reading)
		if err := a.e.Resign(t.Context()); err != nil || first.ctx.Err() == nil {
			t.Fatalf("it does not end: %v", err)
		}
		b.wantLeader()
		time.Sleep(reading)
		if got := n.of(); len(got) != 2 || strings.Count(log.String(), "ouch") < 2 ||
			!strings.Contains(log.String(), "newleader_test.go") {
			t.Errorf("received %d leaders, log:\n%s", len(got), &log)
		}
		assert.NoErr(t, a.quit())
	})
}
