package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/fault"
)

// A port connects one process to the store. It uses the process id and the sessions that the store
// knows. Only the commands in asEvents are events.
type port struct {
	catalog.Catalog // the process's view of the store; calls pass through send
	p               *process
}

func newPort(p *process) *port {
	o := &port{p: p}
	o.Catalog = catalog.Intercept(view{p.w.store, p}, o.send)
	return o
}

func (o *port) store() *store { return o.p.w.store }

// asEvents lists the commands that are events.
var asEvents = []catalog.Op{
	fault.Acquire, fault.Enter, fault.Release, fault.Evict, fault.GrantNext, fault.Confirm,
	fault.SeedFence, fault.Renew, fault.Break,
	fault.Ping, fault.Condemn, fault.Witness, fault.RemovePing, fault.Prune, fault.Prepare,
	fault.Look, fault.Held, fault.OldPings, fault.HeldOrFree, fault.Read, fault.Hello, fault.Waiting,
	fault.GrantStream,
}

// callKey is the context key of a store operation's call.
type callKey struct{}

// send makes an event of a command. A listing is one command. It is sent when the first row is
// requested.
func (o *port) send(ctx context.Context, of catalog.Call, do func(context.Context) error) error {
	op := of.Op
	if !slices.Contains(asEvents, op) || of.Row > 0 {
		return do(ctx)
	}
	c := &call{p: o.p, op: op, subject: strings.Join(of.Names, " "), writes: op.Writes()}
	c.mayBeOld = op == fault.Look || op == fault.Held || op == fault.HeldOrFree
	within := background
	c.do = func() error { return do(context.WithValue(within, callKey{}, c)) }
	switch t := of.PingChange.(type) {
	case transition.Condemn:
		c.watched = t.Watched
	case transition.Witness:
		c.watched = &t.Watched
	}
	switch t := of.Transition.(type) {
	case transition.Enter:
		c.ts, c.request = t.TS, t.Request
	case transition.Confirm:
		c.ts, c.request = t.TS, t.Request
	case transition.SeedFence:
		c.ts = t.TS
	case transition.Leave:
		c.ts = t.TS
	case transition.Evict:
		c.ts, c.from = t.TS, t.Holder
	case transition.Renew:
		c.ts, c.renewal = t.TS, t.Renewal
		if in, _ := catalog.TransactionUnder(ctx, t.Session).(*inside); in != nil {
			in.renews = c
			within = catalog.WithTransaction(background, t.Session, in.Transaction)
			return c.submitIn(ctx, in, c.do)
		}
	}
	return c.submit(ctx)
}

func (o *port) write(op fault.Op, subject string, ts bson.ObjectID) *call {
	return &call{p: o.p, op: op, subject: subject, writes: true, ts: ts}
}

// Apply implements [catalog.Locks].
func (o *port) Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant,
	error) {
	switch as := t.(type) {
	case transition.Enter:
		if l, ok := o.wake(as.Request); ok {
			return l, nil, nil
		}
		as.Process = o.p.alias(as.Process)
		t = as
	case transition.Confirm:
		as.Process = o.p.alias(as.Process)
		t = as
	case transition.Leave:
		as.TS = o.p.snapshot.stored(as.TS)
		t = as
	}
	return o.Catalog.Apply(ctx, t)
}

// ApplyPing implements [catalog.Pings].
func (o *port) ApplyPing(ctx context.Context, t catalog.PingChange) error {
	switch as := t.(type) {
	case transition.Witness:
		as.Sight.By = o.p.alias(as.Sight.By)
		t = as
	case transition.RemovePing:
		as.Process = o.p.alias(as.Process)
		t = as
	}
	return o.Catalog.ApplyPing(ctx, t)
}

// Ping implements [catalog.Pings].
func (o *port) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	b.Process = o.p.alias(b.Process)
	more := o.number(b)
	b.Seq += more
	reply, err := o.Catalog.Ping(ctx, b)
	if errors.Is(err, catalog.ErrTwin) {
		o.p.metTwin()
	}
	reply.Seq -= more
	return reply, err
}

// Held implements [catalog.Pings].
func (o *port) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	return o.Catalog.Held(ctx, o.p.alias(process))
}

// HeldOrFree implements [catalog.Queues].
func (o *port) HeldOrFree(ctx context.Context, process string, names,
	lines []string) ([]catalog.Lock, error) {
	return o.Catalog.HeldOrFree(ctx, o.p.alias(process), names, lines)
}

// GrantStream implements [catalog.Queues].
func (o *port) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	process = o.p.alias(process)
	if !o.p.w.s.Streams {
		return nil, fmt.Errorf("the stream of grants for %q: %w", process, catalog.ErrNoGrantStream)
	}
	return o.Catalog.GrantStream(ctx, process)
}
