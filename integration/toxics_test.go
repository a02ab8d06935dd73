package integration_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A toxic link leads a process to its server. A fault comes over the link at the very moment at
// which the process sends an operation, and stays until it is mended.
type toxicLink struct {
	*link
	t     testing.TB
	store *fault.Catalog

	mu    sync.Mutex // guards the fields below
	armed *armed
	fails int // commands and connections that failed
	slow  int // commands that were answered late
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

// toxic starts a process whose only way to the server is a toxic link.
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
	t.Cleanup(l.mend) // before the process is closed
	return l, m
}

// commandLimit bounds the commands of processes on bad links: long enough for a server on a busy
// machine.
const commandLimit = 3 * time.Second

// strike lets a fault come at the next operation of that kind.
func (l *toxicLink) strike(op fault.Op, f toxicFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.fails, l.slow = &armed{op: op, cause: f}, 0, 0
}

// before is the hook of the store.
func (l *toxicLink) before(_ context.Context, call fault.Call, apply func() error) error {
	l.mu.Lock()
	a := l.armed
	strikes := a != nil && a.op == call.Op && a.hit == 0
	if strikes {
		a.hit++
	}
	l.mu.Unlock()
	if strikes {
		l.set(a.cause.state)
	}
	return apply()
}

// mend makes the link whole.
func (l *toxicLink) mend() {
	l.mu.Lock()
	l.armed = nil
	l.mu.Unlock()
	l.set(passing)
}

// happened checks that the fault struck and was felt, and counts it.
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
