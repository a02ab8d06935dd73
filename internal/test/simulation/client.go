package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/fault"
)

// A port is one process's way to the store. Every command through it is an event; what it does not
// name itself goes to the store unseen.
type port struct {
	catalog.Catalog
	p *process
}

var _ catalog.Catalog = (*port)(nil)

// sendFor sends a command that has a result.
func sendFor[T any](ctx context.Context, c *call, show func(T) string,
	do func() (T, error)) (T, error) {
	var result, none T
	c.do = func() error {
		got, err := do()
		if err == nil {
			result = got
		}
		return err
	}
	if show != nil {
		c.show = func() string { return show(result) }
	}
	if err := c.submit(ctx); err != nil {
		return none, err
	}
	return result, nil
}

func (o *port) write(op fault.Op, subject string, ts bson.ObjectID) *call {
	return &call{p: o.p, op: op, subject: subject, writes: true, ts: ts}
}

func (o *port) read(op fault.Op, subject string) *call {
	return &call{p: o.p, op: op, subject: subject}
}

func (o *port) store() *store { return o.p.w.store }

func showLock(l catalog.Lock) string { return fmt.Sprintf("held, fence %d", l.Fence) }

// Apply implements [catalog.Locks]: each transition is a command of its own.
func (o *port) Apply(ctx context.Context, t catalog.Transition) (l catalog.Lock, grants []catalog.Grant, err error) {
	switch t := t.(type) {
	case transition.Enter:
		l, err = o.enter(ctx, t.Request, t.How)
	case transition.Leave:
		grants, err = o.leave(ctx, t.Session)
	case transition.Evict:
		grants, err = o.evict(ctx, t.Holder, t.Evidence)
	case transition.GrantNext:
		grants, err = o.grantNext(ctx, t.Name)
	case transition.Confirm:
		l, err = o.confirm(ctx, t.Request)
	case transition.SeedFence:
		l, err = o.seedFence(ctx, t.Session, t.AtLeast)
	case transition.Renew:
		err = o.renew(ctx, t.Renewal)
	case transition.Overtake:
		l, err = o.overtake(ctx, t.Request, t.From)
	case transition.Break:
		l, err = o.breakLock(ctx, t.Session, t.Fence, t.Why)
	default:
		return o.Catalog.Apply(ctx, t)
	}
	return l, grants, err
}

func (o *port) confirm(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	r.Process = o.p.alias(r.Process)
	c := o.write(fault.Confirm, r.Name, r.TS)
	c.request = r
	return sendFor(ctx, c, showLock, func() (catalog.Lock, error) {
		return o.store().Confirm(background, r)
	})
}

func (o *port) seedFence(ctx context.Context, s catalog.Session, n int64) (catalog.Lock, error) {
	c := o.write(fault.SeedFence, s.Name, s.TS)
	return sendFor(ctx, c, showLock, func() (catalog.Lock, error) {
		return o.store().SeedFence(background, s, n)
	})
}

// ApplyPing implements [catalog.Pings].
func (o *port) ApplyPing(ctx context.Context, t catalog.PingChange) error {
	var c *call
	switch change := t.(type) {
	case transition.Condemn:
		c = o.write(fault.Condemn, change.Process, bson.ObjectID{})
		c.watched, c.why = change.Watched, change.How
	case transition.Witness:
		change.Sight.By = o.p.alias(change.Sight.By)
		c = o.write(fault.Witness, change.Watched.Process, bson.ObjectID{})
		c.watched, t = &change.Watched, change
	case transition.PutNote:
		change.Process = o.p.alias(change.Process)
		c, t = o.write(fault.PutNote, change.Process, bson.ObjectID{}), change
	case transition.RemovePing:
		change.Process = o.p.alias(change.Process)
		c, t = o.write(fault.RemovePing, change.Process, bson.ObjectID{}), change
	default:
		return o.Catalog.ApplyPing(ctx, t)
	}
	c.do = func() error { return o.store().ApplyPing(background, t) }
	return c.submit(ctx)
}

func (o *port) overtake(ctx context.Context, r catalog.Request, from catalog.Holder) (
	catalog.Lock, error) {
	r.Process = o.p.alias(r.Process)
	c := o.write(fault.Overtake, r.Name, r.TS)
	c.request, c.from = r, from
	return sendFor(ctx, c, showLock, func() (catalog.Lock, error) {
		return o.store().Overtake(background, r, from)
	})
}

// Read implements [catalog.Locks]. It is linearizable, so it is never old.
func (o *port) Read(ctx context.Context, name string) (catalog.Lock, error) {
	return sendFor(ctx, o.read(fault.Read, name), nil, func() (catalog.Lock, error) {
		l, err := o.store().Read(background, name)
		l.TS, _ = o.p.snapshot.own(name, l.TS)
		l.Process = o.p.local(l.Process)
		return l, err
	})
}

// Ping implements [catalog.Pings].
func (o *port) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	b.Process = o.p.alias(b.Process)
	c := o.write(fault.Ping, b.Process, bson.ObjectID{})
	show := func(p catalog.Pinged) string { return fmt.Sprintf("seq %d", p.Seq) }
	more := o.number(b)
	b.Seq += more
	reply, err := sendFor(ctx, c, show, func() (catalog.Pinged, error) {
		return o.store().Ping(background, b)
	})
	if errors.Is(err, catalog.ErrTwin) {
		o.p.metTwin()
	}
	reply.Seq -= more
	return reply, err
}

// Held implements [catalog.Pings].
func (o *port) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	process = o.p.alias(process)
	c := o.read(fault.Held, process)
	var old *picture
	c.old = func(at time.Duration, primary string) { old = &picture{at, primary} }
	show := func(s []catalog.HeldSession) string { return fmt.Sprintf("%d sessions", len(s)) }
	return sendFor(ctx, c, show, func() ([]catalog.HeldSession, error) {
		sessions, err := o.store().held(process, old)
		return o.p.snapshot.held(sessions), err
	})
}

// HeldSummary implements [catalog.Pings].
func (o *port) HeldSummary(ctx context.Context, process string) (catalog.HeldSummary, error) {
	process = o.p.alias(process)
	return sendFor(ctx, o.read(fault.HeldSummary, process), nil, func() (catalog.HeldSummary, error) {
		return o.store().HeldSummary(background, process)
	})
}

// Prune implements [catalog.Pings].
func (o *port) Prune(ctx context.Context, before time.Time) (int, error) {
	return sendFor(ctx, o.write(fault.Prune, "", bson.ObjectID{}), nil, func() (int, error) {
		return o.store().Prune(background, before)
	})
}

// Prepare implements [catalog.Pings].
func (o *port) Prepare(ctx context.Context) ([]string, error) {
	return sendFor(ctx, o.write(fault.Prepare, "", bson.ObjectID{}), nil, func() ([]string, error) {
		return o.store().Prepare(background)
	})
}

// Hello implements [catalog.Pings].
func (o *port) Hello(ctx context.Context) (catalog.Server, error) {
	show := func(s catalog.Server) string { return s.Primary }
	return sendFor(ctx, o.read(fault.Hello, ""), show, func() (catalog.Server, error) {
		s, err := o.store().Hello(background)
		s.ChangeStreams = o.p.w.s.Streams
		return s, err
	})
}

func (o *port) breakLock(ctx context.Context, s catalog.Session, fence int64, why string) (
	catalog.Lock, error) {
	return sendFor(ctx, o.write(fault.Break, s.Name, bson.ObjectID{}), showLock,
		func() (catalog.Lock, error) { return o.store().Break(background, s, fence, why) })
}
