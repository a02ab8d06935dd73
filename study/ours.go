package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// ours is the lock manager of package distlock, with its default timing.
type ours struct {
	p *process
	m *distlock.Manager
}

func newOurs(p *process, _ string) manager { return &ours{p: p} }

// kinds maps each operation of package distlock to its purpose.
var kinds = map[fault.Op]Kind{
	fault.Acquire: Grab, fault.Enter: Grab, fault.Confirm: Grab, fault.SeedFence: Grab,
	fault.Renew: Ping, fault.Ping: Ping, fault.RemovePing: Clean, fault.Prune: Clean,
	fault.Prepare: Clean,
	fault.Look:    Read, fault.Read: Read, fault.Held: Clock,
	fault.Hello: Clock, fault.HeldOrFree: Ask, fault.Waiting: Ask,
	fault.Condemn: Take, fault.Witness: Sight, fault.Evict: Take,
	fault.Release: Release, fault.GrantNext: Grab, fault.Break: Release,
}

// through sends an operation of package distlock to the simulated server, as a command of the
// process.
func (o *ours) through(ctx context.Context, call fault.Call, apply func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not sent: %w", err)
	}
	if call.Op == fault.GrantStream {
		return fmt.Errorf("the stream of grants: %w", catalog.ErrNoGrantStream)
	}
	kind, known := kinds[call.Op]
	if !known {
		return apply()
	}
	c := &command{p: o.p, kind: kind, op: string(call.Op), limit: 5 * time.Second, apply: apply,
		text: call.Subject}
	c.submit()
	switch err := c.wait(ctx); {
	case errors.Is(err, errNoReply) && kind.writes():
		return fault.Lost(call.Op)
	case errors.Is(err, errUnreachable), errors.Is(err, errNoReply):
		return fault.Refused(call.Op)
	default:
		return err
	}
}

// start creates the Manager, and returns after the first ping. After a failure it tries again.
func (o *ours) start() {
	store := fault.Wrap(o.p.w.Server)
	store.Set(o.through)
	cfg := distlock.Config{Host: o.p.host, Logger: zerolog.Nop(), Catalog: store}
	for {
		m, err := distlock.New(clock.With(o.p.ctx, o.p.Clock), cfg)
		if err == nil {
			o.m = m
			break
		}
		o.p.w.record.mark(o.p, "trouble", "does not start: "+brief(err))
		o.p.sleep(time.Second)
	}
	o.p.Go(func() { // closes the Manager at the end of the play, so that its goroutines end
		<-o.p.ctx.Done()
		_ = o.m.Close(context.Background())
	})
}

func (o *ours) lock(patience time.Duration) (*held, error) {
	var opts []distlock.Option
	for _, j := range o.p.jobs {
		if j.lease > 0 {
			opts = append(opts, distlock.Lease(j.lease))
		}
	}
	for end := o.p.w.Now() + patience; ; o.p.sleep(time.Second) {
		var g *distlock.TryGuard
		var err error
		if left := end - o.p.w.Now(); patience == 0 {
			g, err = o.m.Lock(o.p.w.lock).TryLock(o.p.ctx, opts...)
		} else {
			g, err = o.m.Lock(o.p.w.lock).Lock(o.p.ctx, append(opts, distlock.WaitAtMost(left))...)
		}
		if err == nil {
			renew := func() error {
				if err := g.Err(); err != nil || len(opts) == 0 {
					return err
				}
				return g.Renew(o.p.ctx)
			}
			return &held{g.Process() + " " + g.Session().Hex(), g.Fence(), g.Err, renew,
				func() error { return g.Verify(o.p.ctx) }, g.Release}, nil
		}
		if errors.Is(err, distlock.ErrHeld) || o.p.ctx.Err() != nil || o.p.w.Now()+time.Second > end {
			return nil, err
		}
	}
}
