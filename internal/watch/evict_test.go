package watch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
	"mongodlm/takeover"
)

func TestMain(m *testing.M) { effort.Main(m) }

// newPinger returns a pinger that sends no pings.
func newPinger(t *testing.T) *pinger.LockPinger {
	t.Helper()
	return assert.Value(pinger.New(t.Context(), pinger.Config{
		Store: memcatalog.New(memcatalog.Options{}), Owner: struct{ pinger.Owner }{},
		NewProcess: func() (string, error) { return "own", nil },
		Interval:   30 * time.Second, Takeover: time.Hour,
	}))(t)
}

type server struct {
	catalog.Catalog
	events []string
}

func (*server) Hello(context.Context) (catalog.Server, error) { return catalog.Server{}, nil }

func (*server) ApplyPing(context.Context, catalog.PingChange) error { return nil }

func (s *server) Apply(_ context.Context, t catalog.Transition) (
	l catalog.Lock, _ []catalog.Grant, err error,
) {
	dead, ok := t.(transition.Evict)
	if !ok {
		return l, nil, catalog.ErrNoMatch
	}
	s.events = append(s.events, "evict "+dead.Process)
	return l, []catalog.Grant{{Process: "next after " + dead.Process}}, nil
}

// EvictDead delivers each grant before it evicts the next dead process, because that eviction may
// be slow.
func TestEvictDead_SeveralDead_EachGrantIsDeliveredAtOnce(t *testing.T) { // I7
	t.Parallel()
	s := &server{}
	judge := watch.Judge{
		Store: s, Pinger: newPinger(t), Clock: clock.System(),
		Granted: func(grants []catalog.Grant) { s.events = append(s.events, "grant "+grants[0].Process) },
	}
	view := watch.View{Name: "a"}
	for i, process := range []string{"first", "second"} {
		view.Suspects = append(view.Suspects, watch.Suspect{
			Participant: catalog.Participant{Process: process, TS: bson.ObjectID{11: byte(i)}},
			Evidence:    takeover.Evidence{HasPing: true, HasSeq: true},
			Decision:    takeover.Decision{Verdict: takeover.Take},
		})
	}
	evicted, err := judge.EvictDead(t.Context(), view, 2)
	want := []string{"evict second", "grant next after second", "evict first", "grant next after first"}
	if len(evicted) != 2 || err != nil || len(s.events) != len(want) {
		t.Fatalf("evicted %d, %v: %q", len(evicted), err, s.events)
	}
	for i, event := range want {
		if s.events[i] != event {
			t.Errorf("event %d is %q, want %q", i, s.events[i], event)
		}
	}
}

// Decide drops observations that get no further reads. It searches for them once per interval.
func TestDecide_ManyObservations_SweptOnceAnInterval(t *testing.T) {
	t.Parallel()
	const interval, gap, many = 30 * time.Second, time.Minute, 600
	judge := watch.Judge{Store: &server{}, Pinger: newPinger(t), Clock: clock.System(),
		Policy: takeover.Policy{
			Takeover: time.Hour, ForeignTakeover: time.Hour, PingInterval: interval, MaxGap: gap,
		}}
	read := func(name string, at time.Duration) {
		l := catalog.Lock{Name: name, Held: true, State: 1, Process: "of " + name,
			TS: bson.ObjectID{11: 1}, Takeover: time.Hour}
		r := clock.Reading{Mono: at, Wall: time.Unix(0, 0).Add(at)}
		judge.Decide(name, catalog.Snapshot{Lock: &l}, r, r)
	}
	start := time.Hour
	for i := range many {
		read(fmt.Sprint(i), start+time.Duration(i)*time.Second/10)
	}
	before, drops := judge.Observed(), 0
	for s := range 180 {
		read("last", start+gap+time.Duration(s)*time.Second)
		if n := judge.Observed(); n < before {
			drops++
			before = n
		}
	}
	if drops > 180/30+1 || judge.Observed() > 256 {
		t.Errorf("dropped at %d reads, %d are left", drops, judge.Observed())
	}
}

// EvictDead does not evict a holder whose lease has expired if the holder's ping is malformed.
func TestDecide_LeaseRanOut_MalformedPing_IsLeftAlone(t *testing.T) {
	t.Parallel()
	const life, second = time.Minute, time.Second
	held := catalog.Participant{Process: "other", TS: bson.ObjectID{11: 1}, Takeover: time.Hour}
	lock := catalog.Lock{
		Name: "a", Held: true, State: 1, Process: held.Process, TS: held.TS, Takeover: held.Takeover,
		Leases: []catalog.Lease{{TS: held.TS, Number: 1, Life: life, At: time.Unix(0, 0),
			Local: time.Unix(0, 0)}},
	}
	for name, c := range map[string]struct {
		ping *catalog.MalformedError
		dead bool
	}{
		"understood": {nil, true},
		"malformed": {&catalog.MalformedError{Collection: catalog.PingsCollection, ID: "other",
			Field: "ping"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &server{}
			judge := watch.Judge{Store: s, Pinger: newPinger(t), Clock: clock.System(),
				Granted: func([]catalog.Grant) {},
				Policy: takeover.Policy{
					Takeover: time.Hour, ForeignTakeover: time.Hour, PingInterval: 30 * second, MaxGap: 2 * life,
				}}
			var view watch.View
			for at := time.Duration(0); at <= 2*life; at += 10 * second {
				now := time.Unix(0, 0).Add(at)
				r := clock.Reading{Mono: at, Wall: now}
				ping := catalog.Ping{
					Process: "other", Seq: int64(at / second), HasSeq: true, At: now, Local: now,
					Interval: 30 * second,
				}
				state := catalog.PingState{Ping: &ping}
				if c.ping != nil {
					state = catalog.PingState{Err: c.ping}
				}
				view = judge.Decide("a", catalog.Snapshot{
					Lock: &lock, ServerTime: now, Pings: map[string]catalog.PingState{"other": state},
				}, r, r)
			}
			one := view.Suspects[0]
			evicted, err := judge.EvictDead(t.Context(), view, 1)
			n := len(evicted)
			if dead := one.Dead(); dead != c.dead || (n == 1) != c.dead || err != nil {
				t.Errorf("dead %t, evicted %d, %v: %s", dead, n, err, one.Decision.Reason)
			}
			if c.ping != nil && one.Decision.Verdict != takeover.Malformed {
				t.Errorf("verdict %v, want malformed", one.Decision.Verdict)
			}
		})
	}
}
