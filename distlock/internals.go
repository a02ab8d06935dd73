package distlock

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
)

// Internal is only for the packages of this module.
func (m *Manager) Internal(leading.Key) internals { return internals{m} }

// internals provides methods of a Manager to the packages that run functions under locks:
// elections, loops, schedules and queues.
type internals struct{ m *Manager }

// Standby returns the lock for a candidate or a follower, which waits as long as the holder lives.
// Stats.OldestWait does not include this wait. No I/O.
func (in internals) Standby(name string) *DistributedLock {
	return &DistributedLock{in.m, name, true}
}

// Database returns the database of the locks, with the client of the locks. If Config.Catalog is
// set, Database returns nil.
func (in internals) Database() *mongo.Database {
	if in.m.client == nil {
		return nil
	}
	return in.m.client.Database(in.m.cfg.Database)
}

// Use marks a guard as in use by a function, until the returned function is called. Manager.Close
// ends the guard, but releases the lock only after that call. The caller of Use must then check the
// guard's Err, and must not start the function after an error. No I/O.
func (in internals) Use(g *TryGuard) (done func()) { return g.h.use() }

// Watch yields the holder of a lock, or nil for a free lock, and then every change until ctx ends.
// If a lock has several holders, Watch yields the first. A request to release the lock
// (LockInfo.YieldBy) is also a change.
//
// About every Config.PollMax, the process reads all names that it watches, with one command for
// each hundred names, or three commands on the embedded server. Between two reads, or while the
// caller handles a value, several changes can occur. Watch then yields only the last change. If the
// fence differs, the lock was acquired or broken in between.
//
// A temporary error such as ErrUnavailable is yielded once, and so is a *MalformedError. After
// that, the watch continues with the next successful read. The last value is the error that ends
// the watch: the cause of ctx, ErrClosed, ErrBadName.
func (in internals) Watch(ctx context.Context, name string) iter.Seq2[*LockInfo, error] {
	m := in.m
	return func(yield func(*LockInfo, error) bool) {
		if err := checkName(name); err != nil {
			yield(nil, err)
			return
		}
		fail := func(err error) { yield(nil, failedTo("watch", name, err)) }
		if err := usable(ctx); err != nil {
			fail(err)
			return
		}
		if clock.Over(m.closed) {
			fail(ErrClosed)
			return
		}
		m.watch.enter(name)
		defer m.watch.leave(name)
		var delivered *snapshot
		for {
			current, changed := m.watch.current(name)
			if current != delivered {
				delivered = current
				if !yield(current.holder(), current.err) {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				fail(context.Cause(ctx))
				return
			case <-m.closed:
				fail(ErrClosed)
				return
			}
		}
	}
}

// RequestYield asks the holder to release the lock: see LockInfo.YieldBy and YieldWhy. The request
// in the lock document names the holder's session, so a later holder does not receive it. A request
// replaces an earlier request. The parameter why is at most 1 KiB of valid UTF-8 without NUL.
// RequestYield sends a read and a compare-and-set.
//
// Errors: ErrNotHeld if the lock is free, shared or held by permits; ErrBadName; ErrBadOption;
// ErrOutcomeUnknown, after which the caller may ask again; ErrUnavailable; ErrClosed;
// *MalformedError.
func (in internals) RequestYield(ctx context.Context, name, why string) error {
	m := in.m
	if err := checkName(name); err != nil {
		return err
	}
	if problem := catalog.BadText(why, maxWhy); problem != "" {
		return fmt.Errorf("%w: why %s", ErrBadOption, problem)
	}
	err := usable(ctx)
	if err == nil && clock.Over(m.closed) {
		err = ErrClosed
	}
	if err == nil {
		ctx, done := m.whileOpen(ctx)
		defer done()
		_, _, err = m.locks.Apply(ctx, transition.RequestYield{Name: name, By: m.Process(), Why: why})
	}
	return changing("request the yield of", name, err, leading.ErrNotHeld)
}

// PutFirst moves a waiter to the front of the queue, so that the release of this guard grants the
// lock to that waiter. The parameter waiter is the session of that waiter, as in LockInfo. If
// PutFirst is called several times, the last call counts. If the waiter has left the queue, the
// release grants the lock to the next waiter. PutFirst sends a read and a compare-and-set. If ctx
// comes from InTransaction, both are part of the transaction.
//
// Errors: as the guard's Err; ErrNotQueued; ErrBadOption for a guard that is shared or a permit;
// ErrOutcomeUnknown, after which PutFirst may be called again; ErrUnavailable; *MalformedError;
// *LostError.
func (in internals) PutFirst(ctx context.Context, g *TryGuard, waiter bson.ObjectID) error {
	if err := g.Err(); err != nil {
		return err
	}
	name := g.h.request.Name
	if g.h.mode != catalog.Exclusive {
		return fmt.Errorf("%w: the guard of %s is shared or a permit; its release does not grant the "+
			"lock to one waiter alone", ErrBadOption, quoted(name))
	}
	err := usable(ctx)
	if err == nil {
		var done func()
		ctx, done = g.h.m.whileOpen(ctx)
		defer done()
		if done, err = g.h.excludeTransactions(ctx); err == nil {
			defer done()
			_, _, err = g.h.m.locks.Apply(ctx, transition.PutFirst{Session: g.h.request.Session, To: waiter})
		}
	}
	if errors.Is(err, catalog.ErrNoMatch) {
		if lost := g.h.check(ctx); lost != nil {
			return lost
		}
	}
	return changing("put a waiter first in the queue of", name, err, leading.ErrNotQueued)
}

// changing adds the operation and the lock's name to err. It replaces an error that matches
// [catalog.ErrNoMatch] by the error mismatch.
func changing(verb, name string, err, mismatch error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, catalog.ErrNoMatch):
		err = mismatch
	}
	return failedTo(verb, name, err)
}
