package distlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A DistributedLock is one name on which processes exclude each other. It holds nothing: a held
// lock is a [TryGuard]. Get it from [Manager.Lock]; safe for concurrent use.
type DistributedLock struct {
	m    *Manager
	name string
}

// Name returns the lock's name.
func (l *DistributedLock) Name() string { return l.name }

// TryLock acquires the lock if it is free, or if its holder is dead by the takeover rule; it never
// waits. Repeated calls are one observation: they get to a takeover together, as long as they come
// at most MaxWatchGap apart. mongos: lock_try.
//
// The guard's context is a child of ctx. When ctx ends while the server is asked, the outcome is
// looked up once and undone if it was an acquisition.
//
// Errors: a *HeldError, which matches [ErrHeld]; [ErrBadName] and [ErrBadOption] before any I/O;
// [ErrNoHeartbeat]; [ErrClosed]; [ErrUnavailable]; [ErrOutcomeUnknown]; a *MalformedError; a
// *LostError when the reply came after the deadline. The guard is nil exactly if the error is not.
//
// Round trips: one when it is free; two on MongoDB and four on the embedded server when it is held.
// A takeover adds three: hello, condemn, overtake; for a holder that has no ping of ours, a hello, a
// look and a read more. The first acquisition of a name costs one more, which raises the fence.
func (l *DistributedLock) TryLock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	o, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	return l.try(ctx, o)
}

// Lock acquires the lock and waits while somebody else holds it, until ctx ends or as long as
// [WaitAtMost] says. It polls: a waiter that sees a live holder only reads, and of several waiters of
// this Manager for one name only the first does; they get it in the order in which they came. Between
// processes there is no order. A server that cannot be reached is waited for too.
//
// Errors: those of TryLock. When ctx ended, the error matches its cause and the last reason for
// waiting, so errors.Is(err, ErrHeld) tells that somebody held the lock.
func (l *DistributedLock) Lock(ctx context.Context, opts ...Option) (*TryGuard, error) {
	o, err := l.prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	w := waiting{m: l.m, o: o, start: l.m.cfg.Clock.Now(), pause: l.m.cfg.Poll}
	guard, err := l.try(ctx, o)
	if guard != nil || !w.worthwhile(err) {
		return guard, err
	}
	place := l.m.lines.join(l.name)
	defer l.m.lines.leave(l.name, place)
	cause := w.stand(ctx, place)
	for w.worthwhile(err) {
		if cause == nil {
			cause = w.sleep(ctx, err)
		}
		if cause != nil {
			return nil, fmt.Errorf("distlock: acquire %s: %w while waiting: %w", quoted(l.name), cause, err)
		}
		if guard, err = l.poll(ctx, o); guard != nil {
			return guard, nil
		}
	}
	return nil, err
}

func (l *DistributedLock) prepare(ctx context.Context, opts []Option) (acquireOptions, error) {
	if err := checkName(l.name); err != nil {
		return acquireOptions{}, err
	}
	if err := usable(ctx); err != nil {
		return acquireOptions{}, fmt.Errorf("distlock: acquire %s: %w", quoted(l.name), err)
	}
	return newAcquireOptions(opts)
}

func (l *DistributedLock) try(ctx context.Context, o acquireOptions) (*TryGuard, error) {
	a, err := l.m.begin(l.name, o)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	return a.run(ctx)
}

// poll looks first and writes only when the lock is free or may be taken over.
func (l *DistributedLock) poll(ctx context.Context, o acquireOptions) (*TryGuard, error) {
	a, err := l.m.begin(l.name, o)
	if err != nil {
		return nil, err
	}
	defer a.leave()
	guard, err := a.contend(ctx)
	if errors.Is(err, errFree) {
		return a.run(ctx)
	}
	return guard, err
}

// worthWaiting reports whether an error may pass by itself.
func worthWaiting(err error) bool {
	for _, passing := range []error{ErrHeld, ErrNoHeartbeat, ErrUnavailable, ErrOutcomeUnknown, ErrLockLost} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded) // of one command; the caller's is seen by sleep
}

// waiting is one call of Lock.
type waiting struct {
	m     *Manager
	o     acquireOptions
	start Reading
	pause time.Duration
}

// worthwhile reports whether there is time left, and reason to wait after err.
func (w *waiting) worthwhile(err error) bool {
	return worthWaiting(err) && (!w.o.bounded || w.left() > 0)
}

// stand waits until the place is the first of its line or the time is up, and returns why there will
// be no turn.
func (w *waiting) stand(ctx context.Context, p *place) error {
	var up <-chan time.Time
	if w.o.bounded {
		timer := w.m.cfg.Clock.NewTimer(max(w.left(), time.Millisecond))
		defer timer.Stop()
		up = timer.C()
	}
	select {
	case <-p.turn:
		return nil
	case <-up:
		return nil // worthwhile sees it
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.m.closed:
		return ErrClosed
	}
}

func (w *waiting) left() time.Duration {
	return w.o.wait - (w.m.cfg.Clock.Now().Mono - w.start.Mono)
}

// sleep pauses before the next look, and returns why there will be none. The pauses grow while the
// holder lives; a holder that is being watched is looked at when its time is up.
func (w *waiting) sleep(ctx context.Context, last error) error {
	pause := w.m.pinger.Jitter(w.pause, 0.2)
	var held *HeldError
	if errors.As(last, &held) && held.TakeoverIn > 0 {
		pause = min(pause, max(held.TakeoverIn, time.Millisecond))
	}
	w.pause = min(w.pause+w.pause/2, w.m.cfg.PollMax)
	if w.o.bounded {
		pause = min(pause, max(w.left(), time.Millisecond))
	}
	timer := w.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.m.closed:
		return ErrClosed
	}
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
// releases, also when work panics. It never returns nil when the lock was lost while work ran: the
// error joins that of work, the loss, and a failed release.
func (m *Manager) Do(ctx context.Context, name string,
	work func(ctx context.Context, g *TryGuard) error, opts ...Option) (err error) {
	if work == nil {
		return fmt.Errorf("%w: the function given to Do is nil", ErrBadOption)
	}
	guard, err := m.Lock(name).Lock(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.Release()) }()
	return work(guard.Context(), guard)
}
