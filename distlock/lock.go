package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"mongodlm/internal/contend"
)

// A DistributedLock is one name on which processes exclude each other. Get it from [Manager.Lock].
// Safe for concurrent use.
type DistributedLock struct {
	m       *Manager
	name    string
	standby bool // see [internals.Standby]
}

// Lock returns the lock of that name. No I/O; an acquisition checks the name.
func (m *Manager) Lock(name string) *DistributedLock { return &DistributedLock{m: m, name: name} }

// TryLock acquires the lock if it is free or its holder is dead by the takeover rule. It never
// waits, and returns when ctx ends, whatever the server does; the background gives back what may
// have been acquired by then. The guard's context is a child of ctx. mongos: lock_try.
//
// After a refusal the background goes on looking at the processes in the way, by one read an
// interval for up to 256 names, so the first call after the takeover time takes the lock. A new
// process counts on from what another left in the silent process's ping, at least two intervals
// before.
//
// Errors: *HeldError; *PermitMismatchError; [ErrBadName] and [ErrBadOption]; [ErrNoHeartbeat];
// [ErrClosed]; [ErrUnavailable]; [ErrOutcomeUnknown]; *MalformedError; *PrivilegeError; *LostError
// if the reply came too late.
//
// Round trips: one when the lock is free, two when it is held (four on the embedded server), one
// more for the first try that finds the holder silent. A takeover adds three, a foreign holder
// three reads, a name's first acquisition one.
func (l *DistributedLock) TryLock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	c, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.once = true
	return c.acquire(ctx)
}

// Lock acquires the lock and waits while others hold it, until ctx ends or as long as [WaitAtMost]
// says. Waiters are served first come, first served, across processes and inside one. The line
// stands in the lock document, and the command that frees the lock grants it to the next. mongos
// polled.
//
// A waiter behind a live holder sends nothing: one change stream, or one periodic read, serves all
// waiters of a process. A waiter whose process has missed two pings keeps its place, but those
// behind it pass it over. A process that lost its heartbeat goes to the end. At most
// [catalog.MaxWaiters] waiters stand in the document, in the last ten places only processes that
// have no other; more wait in order inside their process.
//
// What may pass, as no answer, is logged once and waited out. A malformed document, no privilege or
// another number of permits ends the wait.
//
// Errors: those of TryLock; [ErrDeadlock], without a command, when the caller holds the lock
// itself, which is known if ctx derives from the guard's context. Other deadlocks are not detected:
// [WaitAtMost] bounds a wait. When ctx ends the error matches its cause and the last reason to
// wait.
//
// Round trips: one to take the lock or a place in the line, two to give up; three and four on the
// embedded server. Releasing a shared lock or a permit costs two if this process has not entered
// that lock before.
func (l *DistributedLock) Lock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	c, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	c.once = c.o.bounded && c.o.wait == 0
	return c.acquire(ctx)
}

// Holder returns who holds the lock, the first of several, or nil. The answer may be old. Errors,
// round trips: as [Inspector.Holder]. MySQL: IS_USED_LOCK.
func (l *DistributedLock) Holder(ctx context.Context) (*LockInfo, error) {
	holders, _, err := l.m.Inspector().Holder(ctx, l.name)
	if err != nil || len(holders) == 0 || !holders[0].Held {
		return nil, err
	}
	return &holders[0], nil
}

// prepare makes a call, before any I/O.
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

// Do acquires the lock as [DistributedLock.Lock] does, runs work with the guard and its context,
// and releases, also when work panics. It joins the errors of work and of [TryGuard.Release]: nil
// means that the lock was held for the whole of work, unless work released it. Close of the Manager
// ends work's context and waits for work; what was lost or closed before is not begun. The release
// is bounded by ctx, and by one command if ctx has ended by then.
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
		back, done := m.givingBack(ctx)
		defer done()
		back, stop := m.whileOpen(back)
		defer stop()
		err = errors.Join(err, guard.releaseWithin(back))
	}()
	done := guard.h.use()
	defer done()
	if guard.Err() != nil {
		return nil // the release says so
	}
	return work(guard.Context(), guard)
}

// Guards are the guards of locks acquired together. Safe for concurrent use.
type Guards struct{ guards []*TryGuard }

// LockAll acquires several locks, all or none, and waits for each as [DistributedLock.Lock] does,
// in the order of their names: so two LockAll cannot deadlock, but callers that hold other locks
// can. [WaitAtMost] bounds the whole. If one fails, the background gives back the others. Two
// thirds of a [Lease] are left at the end: LockAll renews it while it waits.
//
// Errors: Lock's, of the name that failed; [ErrBadOption] for no name or one twice.
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
	var waits sync.WaitGroup // of those that keep the leases meanwhile
	defer waits.Wait()
	defer end()
	for i, name := range names {
		if o.bounded && o.wait > 0 {
			left := max(o.wait-(m.cfg.Clock.Now().Mono-o.began), 1)
			opts = append(slices.Clip(opts), WaitAtMost(left))
		}
		g, err := m.Lock(name).Lock(ctx, opts...)
		if err != nil {
			if errors.Is(err, ErrHeld) { // whoever is silent in the way of the others is watched meanwhile
				for _, other := range names[i+1:] {
					m.judge.Keep(contend.Scene{Name: other})
				}
			}
			all.giveBack()
			return nil, err
		}
		all.guards = append(all.guards, g)
		if o.life > 0 && len(all.guards) < len(names) {
			waits.Go(func() { g.h.keep(meanwhile) })
		}
		ctx = g.h.ctx // ends when any is lost, and says what this caller holds; all keeps the guards
	}
	if err := all.Err(); err != nil {
		all.giveBack()
		return nil, err
	}
	for _, g := range all.guards { // each lives under the one before it: who has one has all
		g.ctx = &guardContext{g.h.ctx, all}
	}
	return all, nil
}

// checkNames refuses what LockAll cannot acquire. The names are sorted.
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

// giveBack releases in the background what was acquired in vain.
func (g *Guards) giveBack() {
	go func() { _ = g.Release() }() // ends with its tries, at the latest with Close; they are logged
}

// All returns the guards in the order of their names.
func (g *Guards) All() []*TryGuard { return slices.Clone(g.guards) }

// Context returns a context that ends when any lock is lost or released.
func (g *Guards) Context() context.Context { return g.guards[len(g.guards)-1].Context() }

// Err returns nil while all guards may be trusted, else the first one's error.
func (g *Guards) Err() error {
	for _, one := range g.guards {
		if err := one.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release releases all of them, the last first and up to 16 side by side, and joins their errors.
// Nil Guards return nil.
func (g *Guards) Release() error {
	if g == nil {
		return nil
	}
	errs := make([]error, len(g.guards))
	sideBySide(len(errs), func(i int) { errs[i] = g.guards[len(errs)-1-i].Release() })
	return errors.Join(errs...)
}
