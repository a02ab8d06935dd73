package distlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// A DistributedLock is a named lock. It is safe for concurrent use.
type DistributedLock struct {
	m       *Manager
	name    string
	standby bool // see [internals.Standby]
}

// Lock returns the lock of that name. Acquisitions check the name. No I/O.
func (m *Manager) Lock(name string) *DistributedLock { return &DistributedLock{m: m, name: name} }

// TryLock acquires the lock if it is free or its holder is dead by the takeover rule. It does not
// wait for a holder. The guard's context is a child of ctx. If ctx ends, TryLock returns, but its
// command continues. If the command then acquires the lock, the next caller of the process gets it,
// or it is released. Concurrent calls of a process with equal options share their commands: a
// call may first wait for the end of an earlier one's.
//
// After a refusal, the Manager watches the holders in the background, for up to 256 locks. So the
// first call after the takeover time takes the lock. Another process can continue a watch that
// began two or more ping intervals ago.
//
// Errors: *HeldError; *PermitMismatchError; [ErrBadName] and [ErrBadOption]; [ErrNoHeartbeat];
// [ErrClosed]; [ErrUnavailable]; [ErrOutcomeUnknown]; *MalformedError; *PrivilegeError; *LostError
// if the reply came too late; the error of an expired ctx. Round trips: one if the lock is free,
// two if it is held; docs/measured.md counts them in all cases.
func (l *DistributedLock) TryLock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	c, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.once = true
	return c.acquire(ctx)
}

// Lock acquires the lock. It waits while other processes hold the lock, until ctx ends or the time
// of [WaitAtMost] is up. A process serves its callers in the order of their calls. The queue orders
// the processes: a process with many callers delays a process with one caller by at most three
// turns.
//
// A waiting call sends no command while the holder lives: one change stream, or one periodic read,
// serves all callers of a process. Entries of a process that missed two pings are passed over. A
// process that lost its heartbeat goes to the end of the queue. Beyond [catalog.MaxWaiters]
// entries, processes poll. A temporary error is logged once. A malformed document, a missing
// privilege or another number of permits ends the wait.
//
// Errors: those of TryLock; [ErrDeadlock], without a command, if ctx derives from the context of a
// guard of this lock. Other deadlocks are not detected: bound the wait. If ctx ends, the error
// matches ctx.Err(), context.Cause(ctx) and the last reason to wait. Round trips: one to acquire
// the lock or queue an entry, two or three on the embedded server.
func (l *DistributedLock) Lock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	c, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.once = c.o.bounded && c.o.wait == 0
	return c.acquire(ctx)
}

// Holder returns the first holder of the lock, or nil if the lock is free. Errors and round trips:
// as [Inspector.Holder].
func (l *DistributedLock) Holder(ctx context.Context) (*LockInfo, error) {
	holders, _, err := l.m.Inspector().Holder(ctx, l.name)
	if err != nil || len(holders) == 0 || !holders[0].Held {
		return nil, err
	}
	return &holders[0], nil
}

func (l *DistributedLock) prepare(ctx context.Context, opts []Option) (*call, error) {
	if err := checkName(l.name); err != nil {
		return nil, err
	}
	if err := usable(ctx); err != nil {
		return nil, acquiring(l.name, err)
	}
	o, err := newAcquireOptions(opts)
	if err != nil {
		return nil, err
	}
	o.parent, o.began = ctx, l.m.cfg.Clock.Now().Mono
	o.standby = l.standby
	return &call{m: l.m, name: l.name, o: o}, nil
}

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
	try    *try   // the try for this call, or nil; guarded by the mu of the agents, as is entry
	entry  *entry // the entry for this call, or nil
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
		timer := c.m.cfg.Clock.NewTimer(c.left())
		defer timer.Stop()
		up = timer.C()
	}
	var last error // error of the last session that did not become a guard
	for {
		s, err := c.receive(ctx, up, last)
		if err != nil {
			return nil, err
		}
		g, err := c.newGuard(s)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, c.stopped(ctx, context.Cause(ctx), cmp.Or(last, err))
		case err == nil || c.once || !worthWaiting(err):
			return g, err
		}
		if last = err; c.o.bounded && c.left() <= 0 { // receive may have received from up already
			return nil, c.stopped(ctx, errTimeUp, last)
		}
		c.m.agents.backOff(c.name, err)
	}
}

// left returns the rest of the time of WaitAtMost.
func (c *call) left() time.Duration { return c.o.wait - (c.m.cfg.Clock.Now().Mono - c.o.began) }

// receive queues the call until its agent answers, the call times out or the Manager is closed.
func (c *call) receive(ctx context.Context, up <-chan time.Time, last error) (*session, error) {
	switch {
	case clock.Over(c.m.closed):
		return nil, acquiring(c.name, ErrClosed)
	case c.once && c.m.pinger.Term() == nil:
		return nil, noHeartbeat(c.name, c.m.pinger.Last())
	}
	c.answer = make(chan answer, 1)
	agents := c.m.agents
	agents.mu.Lock()
	c.agent, c.try = agents.get(c.name), nil
	c.agent.calls = append(c.agent.calls, c)
	c.agent.adjust(nil)
	agents.mu.Unlock()
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

// Do acquires the lock like [DistributedLock.Lock], calls work with the guard's context, and
// releases the lock, even if work panics. It joins the errors of work and of [TryGuard.Release]. A
// nil error means that the lock was held while work ran, unless work released it. If the guard is
// lost before the call, work is not called. The release ends at the latest with ctx, or after
// Config.CommandTimeout if ctx has already ended.
func (m *Manager) Do(ctx context.Context, name string,
	work func(ctx context.Context, g *TryGuard) error, opts ...Option) (err error) {
	if work == nil {
		return fmt.Errorf("%w: the function given to Do is nil", ErrBadOption)
	}
	guard, err := m.Lock(name).Lock(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() {
		back, done := m.releaseContext(ctx)
		defer done()
		back, stop := m.whileOpen(back)
		defer stop()
		err = errors.Join(err, guard.releaseWithin(back))
	}()
	done := guard.h.use()
	defer done()
	if guard.Err() != nil {
		return nil // the release returns the error
	}
	return work(guard.Context(), guard)
}

// Guards are the result of [Manager.LockAll]. They are safe for concurrent use.
type Guards struct{ guards []*TryGuard }

// LockAll acquires all of several locks, or none. It waits for each lock like
// [DistributedLock.Lock], in the order of the names. So two calls of LockAll cannot deadlock each
// other, unless a caller holds another lock before. [WaitAtMost] bounds the whole call. After a
// failed acquisition, the acquired locks are released in the background. LockAll renews a [Lease]
// while it waits: at least two thirds of each lease are left when LockAll returns. Errors: those of
// Lock, for one name; [ErrBadOption] for no name or a repeated one.
func (m *Manager) LockAll(ctx context.Context, names []string, opts ...Option) (*Guards, error) {
	names = slices.Sorted(slices.Values(names))
	if err := checkNames(names); err != nil {
		return nil, err
	}
	o, err := newAcquireOptions(opts)
	if err != nil {
		return nil, err
	}
	if err := usable(ctx); err != nil {
		return nil, fmt.Errorf("distlock: acquire %d locks: %w", len(names), err)
	}
	o.parent, o.began = ctx, m.cfg.Clock.Now().Mono
	fail := func(name string, err error) error {
		(&call{m: m, name: name, o: o}).notAcquired(EventGaveUp, err)
		return err
	}
	for _, name := range names {
		if err := m.heldByCaller(ctx, name, o); err != nil {
			return nil, fail(name, err)
		}
	}
	all := &Guards{}
	meanwhile, end := context.WithCancel(ctx)
	var waits sync.WaitGroup // for the renewals of leases
	defer waits.Wait()
	defer end()
	for i, name := range names {
		one := opts
		if o.bounded && o.wait > 0 {
			left := max(o.wait-(m.cfg.Clock.Now().Mono-o.began), 1)
			one = append(slices.Clip(opts), WaitAtMost(left))
		}
		g, err := m.Lock(name).Lock(ctx, one...)
		if err != nil {
			if errors.Is(err, ErrHeld) { // silent holders of the other locks are watched, too
				for _, other := range names[i+1:] {
					m.judge.WatchRefused(watch.View{Name: other})
				}
			}
			all.giveBack()
			return nil, err
		}
		all.guards = append(all.guards, g)
		if o.life > 0 && len(all.guards) < len(names) {
			waits.Go(func() { g.h.keep(meanwhile) })
		}
		ctx = g.h.ctx // ends when a guard is lost; its lineage contains the guards of this caller
	}
	if err := all.Err(); err != nil {
		all.giveBack()
		return nil, err
	}
	for _, g := range all.guards { // each context is a child of the one before it
		g.ctx = &guardContext{g.h.ctx, all}
	}
	return all, nil
}

// checkNames returns an error for names that LockAll cannot acquire. The names must be sorted.
func checkNames(names []string) error {
	if len(names) == 0 {
		return fmt.Errorf("%w: LockAll was given no name", ErrBadOption)
	}
	for i, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		if i > 0 && names[i-1] == name {
			return fmt.Errorf("%w: LockAll was given %s twice; name each lock once", ErrBadOption,
				quoted(name))
		}
	}
	return nil
}

func (g *Guards) giveBack() {
	go func() { _ = g.Release() }() // ends with its tries, at the latest with Close; they are logged
}

// All returns the guards in the order of their names.
func (g *Guards) All() []*TryGuard { return slices.Clone(g.guards) }

// Context returns a context that ends when any lock is lost or released.
func (g *Guards) Context() context.Context { return g.guards[len(g.guards)-1].Context() }

// Err returns nil, or the error of the first guard that is not trusted.
func (g *Guards) Err() error {
	for _, one := range g.guards {
		if err := one.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release releases all guards, and joins their errors. Nil Guards return nil.
func (g *Guards) Release() error {
	if g == nil {
		return nil
	}
	errs := make([]error, len(g.guards))
	runParallel(len(errs), func(i int) { errs[i] = g.guards[len(errs)-1-i].Release() })
	return errors.Join(errs...)
}
