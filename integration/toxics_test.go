package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog/mongocatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/fault"
)

// A toxic link leads a process to its server through a byte proxy. A fault comes over the link at
// the very moment at which the process sends an operation, and stays until it is mended.
type toxicLink struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
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

// A toxicFault is a fault of the link, as toxics of toxiproxy. None of them is a cut.
type toxicFault struct {
	name   string
	works  bool // the link still carries commands
	toxics []string
}

const slowBy = 200 * time.Millisecond

var toxicFaults = []toxicFault{
	{name: "cut"},
	{name: "half-open", toxics: []string{ // connections stay, nothing arrives
		`{"type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`,
		`{"type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`,
	}},
	{name: "replies lost", toxics: []string{ // requests arrive; the first byte back breaks the wire
		`{"type": "limit_data", "stream": "downstream", "attributes": {"bytes": 0}}`,
	}},
	{name: "slowed", works: true, toxics: []string{
		fmt.Sprintf(`{"type": "latency", "attributes": {"latency": %d}}`, slowBy.Milliseconds()),
	}},
	{name: "sliced", works: true, toxics: []string{ // D9: single bytes
		`{"type": "slicer", "stream": "upstream", "attributes": {"average_size": 1, "delay": 5}}`,
		`{"type": "slicer", "stream": "downstream", "attributes": {"average_size": 1, "delay": 5}}`,
	}},
}

// toxic starts a process whose only way to the server is a toxic link.
func (w *world) toxic(t testing.TB, change func(*distlock.Config)) (*toxicLink, *distlock.Manager) {
	t.Helper()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &toxicLink{t: t,
		proxy: toxiproxy.NewProxy(api, t.Name(), "127.0.0.1:0", w.d.through(t).target)}
	if err := l.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Stop)
	opts := options.Client().ApplyURI("mongodb://" + l.proxy.Listen + "/?directConnection=true").
		SetServerSelectionTimeout(time.Second).SetMonitor(l.commands()).SetPoolMonitor(l.connections())
	inner, err := mongocatalog.New(privateClient(t, opts),
		mongocatalog.Options{Database: w.db.Name(), CommandTimeout: commandLimit})
	if err != nil {
		t.Fatal(err)
	}
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
		l.spoil(a.cause)
	}
	return apply()
}

func (l *toxicLink) spoil(f toxicFault) {
	if len(f.toxics) == 0 {
		l.proxy.Stop()
		return
	}
	for _, toxic := range f.toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewBufferString(toxic)); err != nil {
			l.t.Error(err)
		}
	}
}

// mend makes the link whole.
func (l *toxicLink) mend() {
	l.mu.Lock()
	l.armed = nil
	l.mu.Unlock()
	l.proxy.Toxics.ResetToxics(context.Background())
	l.proxy.Lock()
	stopped := !l.proxy.Enabled
	l.proxy.Unlock()
	if !stopped {
		return
	}
	if err := l.proxy.Start(); err != nil {
		l.t.Errorf("the link does not come back: %v", err)
	}
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
