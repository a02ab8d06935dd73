package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/pinger"
)

// A call is one acquisition by a caller. It waits in the queue of its agent for a session that
// holds the lock.
type call struct {
	m    *Manager
	name string
	o    acquireOptions
	once bool // set for TryLock and WaitAtMost(0), which do not wait for the lock

	ctx    context.Context // the caller's context
	answer chan answer     // capacity 1
	agent  *agent
	trying bool // a try for this call runs; guarded by the mu of the agents
}

type answer struct {
	session *session
	err     error
}

// acquire carries out the call, and reports a failure to the observers.
func (c *call) acquire(ctx context.Context) (g *TryGuard, err error) {
	kind := EventGaveUp
	if c.once {
		kind = EventRefused
	}
	defer func() {
		if err != nil {
			c.notAcquired(kind, err)
		}
	}()
	if !c.once {
		if err := c.m.heldByCaller(ctx, c.name, c.o); err != nil {
			return nil, err
		}
		c.m.judge.EvictDue(c.name)
	}
	c.ctx = ctx
	var up <-chan time.Time
	if c.o.bounded && !c.once {
		timer := c.m.cfg.Clock.NewTimer(c.o.wait - (c.m.cfg.Clock.Now().Mono - c.o.began))
		defer timer.Stop()
		up = timer.C()
	}
	var last error // error of the last session that did not become a guard
	for {
		s, err := c.receive(ctx, up, last)
		if err != nil {
			return nil, err
		}
		g, err := c.newGuard(ctx, s)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, c.stopped(ctx, context.Cause(ctx), cmp.Or(last, err))
		case err != nil && errors.Is(err, errTimeUp):
			return nil, c.stopped(ctx, errTimeUp, last)
		case err == nil || c.once || !worthWaiting(err):
			return g, err
		}
		last = err
		c.m.agents.backOff(c.name, err)
	}
}

// receive queues the call until its agent answers, the call times out or the Manager is closed.
func (c *call) receive(ctx context.Context, up <-chan time.Time, last error) (*session, error) {
	switch {
	case clock.Over(c.m.closed):
		return nil, acquiring(c.name, ErrClosed)
	case c.once && c.m.pinger.Term() == nil:
		return nil, noHeartbeat(c.name, c.m.pinger.Last())
	}
	c.answer = make(chan answer, 1)
	c.m.agents.join(c)
	var cause error
	select {
	case a := <-c.answer:
		return a.session, a.err
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-up:
		cause = errTimeUp
	case <-c.m.closed:
		cause = ErrClosed
	}
	left, why := c.agent.leave(c)
	if why == nil {
		why = last
	}
	if left {
		return nil, c.stopped(ctx, cause, why)
	}
	switch a := <-c.answer; { // the agent answered at the same instant
	case a.err != nil:
		return nil, a.err
	case ctx.Err() != nil:
		c.agent.granted(a.session, nil, nil) // another call may use the session
		return nil, c.stopped(ctx, cause, why)
	default:
		return a.session, nil
	}
}

// stopped returns the error of a call that gave up. The parameter why is the last reason to wait,
// or nil. The error matches both cause and why. If the time of WaitAtMost is up, stopped returns
// why alone, or [ErrUnavailable] if why is nil.
func (c *call) stopped(ctx context.Context, cause, why error) error {
	text := acquirePrefix(c.name) + plain(cause)
	causes := []error{cause}
	switch {
	case errors.Is(cause, errTimeUp) && why != nil:
		return why
	case errors.Is(cause, errTimeUp):
		const text = "the time was up before the server answered"
		return acquiring(c.name, fmt.Errorf("%w: %s", ErrUnavailable, text))
	case ctx.Err() != nil && !errors.Is(cause, ctx.Err()):
		causes = append(causes, ctx.Err())
	}
	if why != nil {
		text += " while waiting: " + reasonText(c.name, why)
		causes = append(causes, why)
	}
	return &acquireError{text: text, causes: causes}
}

func (c *call) notAcquired(kind EventKind, err error) {
	if c.m.events == nil {
		return
	}
	c.m.events.emit(c.o.parent, Event{
		Kind: kind, Name: c.name, Why: c.o.why, Mode: modeWord(c.o.mode), Process: c.m.Process(),
		Waited: c.m.cfg.Clock.Now().Mono - c.o.began, Err: err,
	})
}

// noHeartbeat returns the error of a call that cannot begin, or has to end, because the term t is
// over. If there was no term yet, t is nil.
func noHeartbeat(name string, t *pinger.Term) error {
	if t == nil || t.Err() == nil {
		return acquiring(name, ErrNoHeartbeat)
	}
	return acquiring(name, fmt.Errorf("%w: %w", ErrNoHeartbeat, t.Err()))
}
