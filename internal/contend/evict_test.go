package contend_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
	"mongodlm/takeover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a store and a process that note what happens, in its order.
type server struct {
	contend.Store
	events []string
}

func (*server) Process() string          { return "own" }
func (*server) Server() catalog.Server   { return catalog.Server{} }
func (*server) SetServer(catalog.Server) {}

func (*server) Hello(context.Context) (catalog.Server, error) { return catalog.Server{}, nil }

func (*server) Condemn(context.Context, string, *catalog.Ping, catalog.Condemnation) error {
	return nil
}

func (s *server) Evict(_ context.Context, dead catalog.Holder, _ string) ([]catalog.Grant, error) {
	s.events = append(s.events, "evict "+dead.Process)
	return []catalog.Grant{{Process: "next after " + dead.Process}}, nil
}

// I7: a grant is told before the next of the dead is evicted. That may take as long as the server likes.
func TestEvictDead_SeveralDead_EachGrantIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := &server{}
	judge := contend.Judge{
		Store: s, Process: s, Clock: clock.System(),
		Granted: func(grants []catalog.Grant) { s.events = append(s.events, "told "+grants[0].Process) },
	}
	scene := contend.Scene{Name: "a"}
	for i, process := range []string{"first", "second"} {
		scene.Suspects = append(scene.Suspects, contend.Suspect{
			Participant: catalog.Participant{Process: process, TS: bson.ObjectID{11: byte(i)}},
			Evidence:    takeover.Evidence{HasPing: true, HasSeq: true},
			Decision:    takeover.Decision{Verdict: takeover.Take},
		})
	}
	n, err := judge.EvictDead(t.Context(), scene, 2)
	want := []string{"evict second", "told next after second", "evict first", "told next after first"}
	if n != 2 || err != nil || len(s.events) != len(want) {
		t.Fatalf("evicted %d, %v: %q", n, err, s.events)
	}
	for i, event := range want {
		if s.events[i] != event {
			t.Errorf("event %d is %q, want %q", i, s.events[i], event)
		}
	}
}
