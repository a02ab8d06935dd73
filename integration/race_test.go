package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
)

const (
	overtakeRounds = 500 // of the command
	managerRounds  = 30  // of whole processes
)

// I1: two contenders overtake a dead holder at one instant. Exactly one of them wins, and the
// document is as that one wrote it.
func TestOvertake_TwoAtOneInstant_ExactlyOneWins(t *testing.T) {
	forEachInTurn(t, func(t *testing.T, w *world) {
		c, err := mongocatalog.New(w.d.app, mongocatalog.Options{Database: w.db.Name()})
		if err != nil {
			t.Fatal(err)
		}
		d := w.plantHeld(t, nil)
		from := w.lock(t, d.name).Holder()
		for round := range overtakeRounds {
			grants := [2]catalog.Request{}
			var errs [2]error
			start := make(chan struct{})
			var racing sync.WaitGroup
			for i := range grants {
				grants[i] = catalog.Request{
					Session: catalog.Session{Name: d.name, TS: bson.NewObjectID()},
					Process: d.process, Takeover: time.Minute,
				}
				racing.Go(func() {
					<-start
					_, errs[i] = catalogtest.On(c).Overtake(t.Context(), grants[i], from)
				})
			}
			close(start)
			racing.Wait()
			winner := 0
			if errs[0] != nil {
				winner = 1
			}
			if errs[winner] != nil || !errors.Is(errs[1-winner], catalog.ErrNoMatch) {
				t.Fatalf("round %d: want one winner and one ErrNoMatch, got %v and %v", round, errs[0], errs[1])
			}
			from.Session = grants[winner].Session // the winner is the next dead holder
		}
		if l := w.lock(t, d.name); l.Fence != 1<<40+overtakeRounds || l.TS != from.TS {
			t.Errorf("after %d rounds: %+v, want the last winner and one more fence each", overtakeRounds, l)
		}
	})
}

// The same with whole processes, each of which has looked, decided and asked who is primary before
// either of them sends its overtake. The loser is told who holds the lock.
func TestTryLock_TwoTakeOverAtOneInstant_ExactlyOneWins(t *testing.T) {
	forEachInTurn(t, func(t *testing.T, w *world) {
		gate := &rendezvous{}
		contenders := [2]*distlock.Manager{w.contender(t, gate), w.contender(t, gate)}
		for round := range managerRounds {
			d := w.plantHeld(t, append(w.pinged(t, time.Hour),
				field("condemned", bson.D{field("by", "a contender that died")})))
			gate.reset()
			var guards [2]*distlock.TryGuard
			var errs [2]error
			var racing sync.WaitGroup
			for i, m := range contenders {
				racing.Go(func() { guards[i], errs[i] = w.try(t, m, d.name) })
			}
			racing.Wait()
			winner := 0
			if guards[0] == nil {
				winner = 1
			}
			if guards[winner] == nil || guards[1-winner] != nil {
				t.Fatalf("round %d: want one guard, got errors %v and %v", round, errs[0], errs[1])
			}
			h := heldError(t, errs[1-winner])
			if want := contenders[winner].Process(); h.Process != want {
				t.Errorf("round %d: the loser is told that %q holds it, want %q", round, h.Process, want)
			}
			if gate.met() != 2 {
				t.Errorf("round %d: %d contenders came to the overtake, want both", round, gate.met())
			}
			if err := guards[winner].Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

// contender starts a process that waits for the other one before its overtake.
func (w *world) contender(t *testing.T, gate *rendezvous) *distlock.Manager {
	t.Helper()
	inner, err := mongocatalog.New(w.d.app, mongocatalog.Options{Database: w.db.Name()})
	if err != nil {
		t.Fatal(err)
	}
	store := fault.Wrap(inner)
	store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
		if call.Op == fault.Overtake {
			gate.arrive(ctx)
		}
		return apply()
	})
	return w.start(t, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, store
	})
}

// A rendezvous lets the first two that arrive go on together; whoever comes later does not wait.
type rendezvous struct {
	mu      sync.Mutex // guards the fields below
	arrived int
	both    chan struct{} // closed when two have arrived
}

func (r *rendezvous) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived, r.both = 0, make(chan struct{})
}

func (r *rendezvous) arrive(ctx context.Context) {
	r.mu.Lock()
	both := r.both
	if r.arrived++; r.arrived == 2 {
		close(both)
	}
	r.mu.Unlock()
	select {
	case <-both:
	case <-ctx.Done():
	}
}

func (r *rendezvous) met() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrived
}
