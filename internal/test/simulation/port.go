package simulation

import (
	"context"
	"slices"
	"strings"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/fault"
)

// A port is the store of one process. It turns the operations in asEvents into events.
type port struct {
	catalog.Catalog // a view of the store; calls pass through send
	p               *process
}

func newPort(p *process) *port {
	o := &port{p: p}
	o.Catalog = catalog.Intercept(view{p.w.store, p}, o.send)
	return o
}

// asEvents lists the operations whose commands are events. The store executes other operations
// immediately.
var asEvents = []catalog.Op{
	fault.Acquire, fault.Enter, fault.Release, fault.Evict, fault.GrantNext, fault.Confirm,
	fault.SeedFence, fault.Renew, fault.Break,
	fault.Ping, fault.Condemn, fault.Witness, fault.RemovePing, fault.Prune, fault.Prepare,
	fault.Look, fault.Held, fault.OldPings, fault.HeldOrFree, fault.Read, fault.Hello, fault.Waiting,
	fault.GrantStream,
}

// callKey is the context key for the call that executes an operation.
type callKey struct{}

// send sends a command as an event. A listing is one command, which is sent with the first row.
func (o *port) send(ctx context.Context, of catalog.Call, do func(context.Context) error) error {
	op := of.Op
	if !slices.Contains(asEvents, op) || of.Row > 0 {
		return do(ctx)
	}
	c := &call{p: o.p, op: op, subject: strings.Join(of.Names, " "), writes: op.Writes()}
	c.mayBeOld = op == fault.Look || op == fault.Held || op == fault.HeldOrFree
	if op == fault.Ping {
		o.p.recordID(c.subject)
	}
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
		if t.Enqueue != nil {
			c.request = *t.Enqueue
		}
	case transition.Evict:
		c.ts, c.from = t.TS, t.Holder
	case transition.Renew:
		c.ts, c.renewal = t.TS, t.Renewal
		if in, _ := catalog.TransactionUnder(ctx, t.Session).(*transaction); in != nil {
			in.renews = c
			within = catalog.WithTransaction(background, t.Session, in.Transaction)
			return c.submitIn(ctx, in)
		}
	}
	return c.submit(ctx)
}

// A view is the store from which a process reads. A fault can make a view return an old state.
type view struct {
	*store
	p *process
}

// read returns the store that answers a read. The store contains the present documents, or old
// documents because of a fault.
func (v view) read(ctx context.Context) catalog.Catalog {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil && c.old != nil {
		return v.asOf(*c.old)
	}
	return v.store.Catalog
}

// Held implements [catalog.Pings].
func (v view) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	return v.read(ctx).Held(ctx, process)
}

// Snapshots implements [catalog.Queues].
func (v view) Snapshots(ctx context.Context, names []string) (catalog.Looks, error) {
	snapshots, err := v.read(ctx).Snapshots(ctx, names)
	if c, _ := ctx.Value(callKey{}).(*call); c != nil {
		c.snapshots = snapshots
	}
	return snapshots, err
}

// HeldOrFree implements [catalog.Queues].
func (v view) HeldOrFree(ctx context.Context, process string,
	names, lines []string) ([]catalog.Lock, error) {
	return v.read(ctx).HeldOrFree(ctx, process, names, lines)
}

// Hello implements [catalog.Pings].
func (v view) Hello(ctx context.Context) (catalog.Server, error) {
	s, err := v.store.Hello(ctx)
	s.ChangeStreams = v.w.s.Streams
	return s, err
}
