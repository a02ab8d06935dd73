package distlock

import (
	"context"
	"errors"
	"fmt"

	"mongodlm/catalog"
)

// A DistributedLock is one name on which processes exclude each other. It holds nothing: a held
// lock is a [TryGuard]. Get it from [Manager.Lock]; safe for concurrent use.
type DistributedLock struct {
	m    *Manager
	name string
}

// TryLock acquires the lock if it is free, or if its holder is dead by the takeover rule; it never
// waits. Repeated calls are one observation: they get to a takeover together, however seldom they come, since
// the background goes on looking at those who were in the way of a refused try, by one read an interval for up
// to 256 names, until they are heard of again. So a holder that was silent at one try is taken over at
// the first one after the takeover time. In a new process each time the next try counts from what the one
// before left in the silent one's ping, if a minute (two ping intervals) lies between. mongos: lock_try.
//
// The guard's context is a child of ctx. TryLock returns when ctx ends, whatever the server does; what
// it may have acquired by then is given back in the background.
//
// Errors: a *HeldError, which matches [ErrHeld]; a *PermitMismatchError while a process that is not dead by the
// rule uses the lock with another limit; [ErrBadName] and [ErrBadOption] before any I/O;
// [ErrNoHeartbeat]; [ErrClosed]; [ErrUnavailable]; [ErrOutcomeUnknown]; a *MalformedError; a
// *LostError when the reply came after the deadline. The guard is nil exactly if the error is not.
//
// Round trips: one when it is free; two on MongoDB and four on the embedded server when it is held; one more
// for the first that finds the holder silent.
// A takeover adds three: one makes sure of the server, one condemns, one takes the lock; for a foreign
// holder three reads more. The first acquisition of a name costs one more, which raises the fence.
func (l *DistributedLock) TryLock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	o, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	o.bounded = false
	ctx, done := l.m.calling(ctx, o)
	defer done()
	guard, err := l.try(ctx, o)
	l.notAcquired(EventRefused, o, err)
	return guard, err
}

// Lock acquires the lock and waits while others hold it, until ctx ends or as long as
// [WaitAtMost] says: first come, first served, across processes and inside one. The line stands in
// the lock document, and each process that releases, gives up, or takes a dead holder out of it grants
// the lock to the next in the same command. No mongos had that; they polled.
//
// A waiter that sees a live holder sends nothing: its process hears of grants by one change stream,
// or asks, where there are none or while they tell late, for all its waiters together by one read. A waiter
// whose process has missed two pings is passed over by those behind it, so that no release grants the lock to the
// dead; if it lives it stands in front again. A server that cannot be reached
// is waited for; a process that lost its heartbeat meanwhile goes to the end of the line. At most
// [catalog.MaxWaiters] stand in a document; the last ten places are for processes that have none yet. More
// wait inside their processes, in order: the first of each looks whether there is room and whether those
// who stand in the document live, takes the dead out, and enters when there is room. A contender that asks
// for another limit than silent processes use waits in the same way, until they turn out to be dead or alive.
//
// What makes waiting hopeless ends it with the error that a new call would get: a document that cannot
// be understood, a missing privilege, another limit that a living process uses. What makes it doubtful, such as a
// server that does not answer, is logged once an episode, and Lock goes on.
//
// Errors: those of TryLock; a *DeadlockError, at once when the caller holds the lock itself, and
// after a second, at most five, when it waits for itself by way of others and is the one who gives way to
// most. However many wait for one another, all who have to give up are told then. What it holds is known from its context, see [TryGuard.Context], or from
// [Holding], up to 1,000 locks. Lock returns when ctx ends; then the error matches its cause and the last
// reason for waiting, so errors.Is(err, ErrHeld) tells that the lock was held.
//
// Round trips: one to take or to queue, and two to give up, on MongoDB; three and four on the embedded
// server. With [Shared] or [Permits], which the first release of a process in a lock that it has not
// entered since its start does not know of, that release costs two.
func (l *DistributedLock) Lock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	o, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	ctx, done := l.m.calling(ctx, o)
	defer done()
	if o.bounded && o.wait == 0 {
		guard, err := l.try(ctx, o)
		l.notAcquired(EventRefused, o, err)
		return guard, err
	}
	guard, err := l.wait(ctx, o)
	l.notAcquired(EventGaveUp, o, err)
	return guard, err
}

// wait is Lock for a caller that has time.
func (l *DistributedLock) wait(ctx context.Context, o acquireOptions) (*TryGuard, error) {
	l.m.waits.Add(1)
	defer l.m.waits.Add(-1)
	if err := l.m.standsInOwnWay(ctx, l.name, o); err != nil {
		return nil, err
	}
	w := &waiting{m: l.m, o: o, name: l.name, pause: l.m.cfg.Poll}
	defer w.entered()
	if o.line == catalog.Barge {
		guard, err := l.try(ctx, o)
		switch {
		case guard == nil && ctx.Err() != nil:
			return nil, w.ended(ctx, err)
		case guard != nil || !worthWaiting(err) && !errors.Is(err, ErrPermitMismatch):
			return guard, err
		}
	}
	for {
		guard, err := w.stay(ctx)
		switch {
		case guard != nil:
			l.m.queue.HadTurn(l.name, guard.Fence())
			return guard, nil
		case ctx.Err() != nil:
			return nil, w.ended(ctx, err)
		case !worthWaiting(err):
			return nil, err
		}
		w.last = err
		if err := w.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// Holder tells who holds the lock, and returns nil when nobody does: PostgreSQL's pg_locks of one lock, and
// IS_FREE_LOCK and IS_USED_LOCK of MySQL. Of several holders it is the one that came first; all of them, the
// waiters and the last holder of a free lock are what [Inspector.Holder] shows. The answer may be
// out of date when it arrives: it is for people and logs, not for deciding whether to work.
//
// Errors and round trips: those of [Inspector.Holder].
func (l *DistributedLock) Holder(ctx context.Context) (*LockInfo, error) {
	holders, _, err := l.m.Inspector().Holder(ctx, l.name)
	if err != nil || len(holders) == 0 || !holders[0].Held {
		return nil, err
	}
	return &holders[0], nil
}

func (l *DistributedLock) prepare(ctx context.Context, opts []Option) (acquireOptions, error) {
	if err := checkName(l.name); err != nil {
		return acquireOptions{}, err
	}
	if err := usable(ctx); err != nil {
		return acquireOptions{}, acquiring(l.name, err)
	}
	o, err := newAcquireOptions(opts)
	o.parent, o.began = ctx, l.m.events.start()
	return o, err
}

func (l *DistributedLock) try(ctx context.Context, o acquireOptions) (*TryGuard, error) {
	a, err := l.m.begin(l.name, o)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	return a.run(ctx)
}

// worthWaiting reports whether an error may pass by itself.
func worthWaiting(err error) bool {
	var stopped *stoppedError
	if errors.As(err, &stopped) {
		return false
	}
	for _, passing := range []error{ErrHeld, ErrNoHeartbeat, ErrUnavailable, ErrOutcomeUnknown, ErrLockLost} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded) // of one command; the caller's is seen by sleep
}

// saysNothing reports whether an error of an acquisition says of neither the lock nor the server anything,
// but only that the context of a command ended, in whatever words the store has for that.
func saysNothing(err error) bool {
	cause := Event{Err: err}.Cause()
	return (cause == canceled || cause == closed) && !errors.Is(err, ErrHeld)
}

// usable refuses a context with which nothing could be done.
func usable(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil; pass context.Background()", ErrBadOption)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Do acquires the lock as [DistributedLock.Lock] does, runs work with the guard and its context, and
// releases, also when work panics. It never returns nil when the lock was not held for the whole of
// work, unless work released the guard itself: the error joins that of work with that of
// [TryGuard.Release], which tells of the loss, of a Manager that was closed meanwhile, and of a release
// that failed. Releasing is bounded by ctx, and by one command if ctx has ended by then.
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
	return work(guard.Context(), guard)
}
