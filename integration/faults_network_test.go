package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// wired are the deployments that a process can reach through a proxy.
var wired = named("embedded", "standalone", "replicaset")

// freeLimit bounds the time until a lock of unknown outcome is free, once the server can be
// reached. Nominally this takes one ping and one command.
const freeLimit = 40 * time.Second

// D1, D3, D4, D6 to D9, I2, I6 to I8: Each operation has a correct outcome if the link goes bad
// when the operation is sent. The link stays bad until the operation returns.
func TestFaults_BadLinkAtEachOperation(t *testing.T) {
	t.Parallel()
	operations := []struct {
		op  fault.Op
		run func(t *testing.T, w *world, f toxicFault)
	}{
		{fault.Acquire, badLinkAtAcquire},
		{fault.Evict, badLinkAtEviction},
		{fault.Ping, badLinkAtPing},
		{fault.Release, badLinkAtRelease},
	}
	for _, f := range toxicFaults {
		for _, o := range operations {
			t.Run(f.name+" at "+string(o.op), func(t *testing.T) {
				t.Parallel()
				forThese(t, wired, func(t *testing.T, w *world) {
					w.besides(t, func() { o.run(t, w, f) })
				})
			})
		}
	}
}

// besides lets another process hold a lock and calls the function do. It checks that the lock stays
// held and unchanged.
func (w *world) besides(t *testing.T, do func()) {
	t.Helper()
	name := w.name("bystander")
	other := w.start(t, func(cfg *distlock.Config) { cfg.Takeover = 40 * time.Second })
	g := w.mustTry(t, other, name)
	w.untouched(t, name, do)
	assert.NoErr(t, g.Err(), "a lock of another process")
}

func badLinkAtAcquire(t *testing.T, w *world, f toxicFault) {
	name := w.name("balancer")
	l, m := w.toxic(t, nil)
	last := w.mustTry(t, m, name).Fence()
	w.release(t, name)
	l.strike(fault.Acquire, f)
	g, err := w.try(t, m, name)
	l.happened(w, fault.Acquire, f)
	if f.works {
		w.wantGuard(t, m, g, err)
		return
	}
	wantNoGuard(t, g, err)
	applied := w.lock(t, name).Held
	if want := f.name == "replies lost"; applied != want {
		t.Errorf("applied %v, want %v", applied, want)
	}
	l.mend()
	w.wantFreed(t, name)
	if next := w.wait(t, m, name).Fence(); next <= last || applied && next <= last+1 {
		t.Errorf("fence %d after %d", next, last)
	}
}

func badLinkAtEviction(t *testing.T, w *world, f toxicFault) {
	d := w.plantCondemned(t)
	l, m := w.toxic(t, nil)
	planted := w.document(t, catalog.LocksCollection, d.name)
	l.strike(fault.Evict, f)
	g, err := w.try(t, m, d.name)
	l.happened(w, fault.Evict, f)
	if f.works {
		w.wantGuard(t, m, g, err)
		return
	}
	wantNoGuard(t, g, err)
	applied := w.document(t, catalog.LocksCollection, d.name).String() != planted.String()
	if want := f.name == "replies lost"; applied != want {
		t.Errorf("applied %v, want %v", applied, want)
	}
	l.mend()
	if applied {
		w.wantFreed(t, d.name)
	}
	if g := w.wait(t, m, d.name); g.Fence() <= 1<<40 || applied == (g.TakeoverEvidence() != "") {
		t.Errorf("fence %d, taken over %q", g.Fence(), g.TakeoverEvidence())
	}
}

func badLinkAtPing(t *testing.T, w *world, f toxicFault) {
	l, m := w.toxic(t, nil)
	g := w.mustTry(t, m, w.name("balancer"))
	before := m.Stats()
	l.strike(fault.Ping, f)
	eventually(t, 30*time.Second, "the heartbeat feels it", func() bool {
		now := m.Stats()
		return f.works && now.Pings > before.Pings+2 || !f.works && now.Failures > before.Failures+1
	})
	l.happened(w, fault.Ping, f)
	l.mend()
	deadline, pings := g.Deadline(), m.Stats().Pings
	eventually(t, 30*time.Second, "pings succeed again", func() bool {
		return m.Stats().Pings > pings+1
	})
	assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context())))
	if !g.Deadline().After(deadline) || m.Stats().Processes != 0 {
		t.Errorf("deadline %v after %v, %+v", g.Deadline(), deadline, m.Stats())
	}
}

func badLinkAtRelease(t *testing.T, w *world, f toxicFault) {
	name := w.name("balancer")
	l, m := w.toxic(t, nil)
	g := w.mustTry(t, m, name)
	l.strike(fault.Release, f)
	err := g.Release()
	l.happened(w, fault.Release, f)
	wantErr(t, g.Err(), distlock.ErrReleased)
	if f.works {
		if err != nil || w.lock(t, name).Held {
			t.Errorf("%v, held %v", err, w.lock(t, name).Held)
		}
		return
	}
	var failed *distlock.ReleaseError
	if !errors.As(err, &failed) || failed.Tries != 2 {
		t.Errorf("%v, want a *ReleaseError after two tries", err)
	}
	if f.name != "replies lost" {
		l.mend()
		w.wantFreed(t, name)
		return
	}
	rival := w.start(t, func(cfg *distlock.Config) { cfg.Takeover = 40 * time.Second })
	w.wantFreed(t, name)      // the server may execute the release late
	w.mustTry(t, rival, name) // I6
	w.untouched(t, name, func() {
		l.mend()
		eventually(t, freeLimit, "the late release is done with", func() bool {
			return m.Stats().Late > 0
		})
	})
}

// A toxicLink is a link that goes bad when the process sends a given operation. The link stays bad
// until mend is called.
type toxicLink struct {
	*link
	t     testing.TB
	store *fault.Catalog

	mu    sync.Mutex // guards the fields below
	armed *armed
	fails int // the number of failed commands and connections
	slow  int // the number of late answers
}

type armed struct {
	op    fault.Op
	cause toxicFault
	hit   int
}

// A toxicFault is a bad state of the link.
type toxicFault struct {
	name  string
	works bool // the link still carries commands
	state linkState
}

var toxicFaults = []toxicFault{
	{"cut", false, cut}, {"half-open", false, silent}, {"replies lost", false, deaf},
	{"slowed", true, slowed}, {"sliced", true, sliced}, // D9: single bytes
}

// toxic starts a process that reaches the server only through a toxic link.
func (w *world) toxic(t testing.TB, change func(*distlock.Config)) (*toxicLink, *distlock.Manager) {
	t.Helper()
	l := &toxicLink{link: w.d.through(t), t: t}
	opts := options.Client().ApplyURI(l.uri()).
		SetServerSelectionTimeout(time.Second).SetMonitor(l.commands()).SetPoolMonitor(l.connections())
	inner, err := mongocatalog.New(privateClient(t, opts),
		mongocatalog.Options{Database: w.db.Name(), CommandTimeout: commandLimit})
	assert.Must(t, err)
	l.store = fault.Wrap(inner)
	l.store.Set(l.before)
	m := w.start(t, func(cfg *distlock.Config) {
		cfg.Client, cfg.PingClient, cfg.Catalog = nil, nil, l.store
		cfg.CommandTimeout, cfg.ReleaseTries = commandLimit, 2
		cfg.Takeover = 40 * time.Second
		if change != nil {
			change(cfg)
		}
	})
	t.Cleanup(l.mend) // runs before the process is closed
	return l, m
}

// commandLimit is the command timeout of processes on bad links. A server on a busy machine answers
// within it.
const commandLimit = 3 * time.Second

// strike arms a fault for the next operation op. A deaf link loses the reply to
// op and all later replies. An earlier lost reply would close the connection before op is sent.
func (l *toxicLink) strike(op fault.Op, f toxicFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.fails, l.slow = &armed{op: op, cause: f}, 0, 0
}

// before is the store's hook. It applies the armed fault.
func (l *toxicLink) before(_ context.Context, call fault.Call, apply func() error) error {
	l.mu.Lock()
	a := l.armed
	strikes := a != nil && a.op == call.Op && a.hit == 0
	if strikes {
		a.hit++
	}
	l.mu.Unlock()
	switch {
	case strikes && a.cause.state == deaf:
		l.deafFrom(string(a.op))
	case strikes:
		l.set(a.cause.state)
	}
	return apply()
}

// mend disarms the fault and repairs the link.
func (l *toxicLink) mend() {
	l.mu.Lock()
	l.armed = nil
	l.mu.Unlock()
	l.deafFrom("")
	l.set(passing)
}

// happened checks that the fault struck and had an effect, and counts the fault.
func (l *toxicLink) happened(w *world, op fault.Op, f toxicFault) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.armed == nil || l.armed.hit != 1:
		l.t.Errorf("the fault did not strike at %s", op)
	case !f.works && l.fails == 0:
		l.t.Errorf("%s at %s: no command failed", f.name, op)
	case f.name == "slowed" && l.slow == 0:
		l.t.Errorf("%s at %s: no command was late", f.name, op)
	}
	injected.add(w.d.name, f.name, string(op))
}

func (l *toxicLink) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails++
}

func (l *toxicLink) commands() *event.CommandMonitor {
	return &event.CommandMonitor{
		Failed: func(context.Context, *event.CommandFailedEvent) { l.failed() },
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if e.Duration >= slowBy {
				l.slow++
			}
		},
	}
}

func (l *toxicLink) connections() *event.PoolMonitor {
	return &event.PoolMonitor{Event: func(e *event.PoolEvent) {
		if e.Type == event.ConnectionCheckOutFailed || e.Type == event.ConnectionPoolCleared {
			l.failed()
		}
	}}
}
