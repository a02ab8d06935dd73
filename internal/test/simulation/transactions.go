package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// This file implements the transactions of a process. Each write in a transaction is a command, and
// the commit is a command.

const (
	opTouch  fault.Op = "touch" // a guard's transaction writes to the lock document
	opCommit fault.Op = "commit"
)

// inDoubt is the pause before a write that a transaction blocks is tried again, and before a
// transaction runs again after a conflict.
const inDoubt = 10 * time.Millisecond

// errTransient is the error of a transaction that was undone and may run again.
type errTransient struct{ error }

func (e errTransient) Unwrap() error                 { return e.error }
func (errTransient) HasErrorLabel(label string) bool { return label == "TransientTransactionError" }

func transient(err error) bool {
	var labeled interface{ HasErrorLabel(string) bool }
	return errors.As(err, &labeled) && labeled.HasErrorLabel("TransientTransactionError")
}

// inside is an open transaction of a process.
type inside struct {
	*memcatalog.Transaction
	locks  []string                // lock documents that it has written
	passes map[string]catalog.Lock // locks that it holds through EnterTransaction
	held   *Held                   // lock of the guard under which it runs, or nil
	renews *call                   // last renewal of that lock's lease
}

type insideKey struct{}

func insideOf(ctx context.Context) *inside {
	in, _ := ctx.Value(insideKey{}).(*inside)
	return in
}

// Transact implements [catalog.Transactions]. Like a real store, it writes the lock document after
// the work in the first run, and before the work in each later run.
func (o *port) Transact(ctx context.Context, s catalog.Session,
	run func(context.Context) error) error {
	ran := false
	return o.transaction(ctx, func(ctx context.Context) error {
		in, first := insideOf(ctx), ran
		touch := func() error {
			return o.write(opTouch, s.Name, s.TS).submitIn(ctx, in, func() error {
				return o.store().Touch(in.Context(background), s)
			})
		}
		if first {
			if err := touch(); err != nil {
				return err
			}
		}
		ran = true
		if err := run(catalog.WithTransaction(ctx, s, in)); err != nil || first {
			return err
		}
		return touch()
	})
}

// submitIn submits a command of a transaction. If the outcome is unknown, the transaction is
// undone.
func (c *call) submitIn(ctx context.Context, in *inside, do func() error) error {
	c.inside, c.do = in, do
	err := c.submit(ctx)
	if errors.Is(err, catalog.ErrUnknownOutcome) || errors.Is(err, catalog.ErrUnavailable) {
		return errTransient{err}
	}
	in.locks = append(in.locks, c.subject)
	return err
}

// transaction runs work in a transaction and commits it. After a conflict it repeats both until ctx
// is done.
func (o *port) transaction(ctx context.Context, work func(ctx context.Context) error) error {
	for {
		err := o.transactOnce(ctx, work)
		if !transient(err) {
			return err
		}
		if !clock.Sleep(o.p.Clock, inDoubt, ctx.Done()) {
			return fmt.Errorf("%w: %v", context.Cause(ctx), err)
		}
	}
}

func (o *port) transactOnce(ctx context.Context, work func(ctx context.Context) error) error {
	in := &inside{Transaction: o.store().Begin(), passes: map[string]catalog.Lock{}}
	defer in.Abort()
	within := context.WithValue(in.Context(ctx), insideKey{}, in)
	if err := work(within); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	}
	subject := ""
	if len(in.locks) > 0 {
		subject = in.locks[0]
	}
	c := o.write(opCommit, subject, bson.ObjectID{})
	c.inside = in
	c.do = func() error {
		o.p.w.judge.commits(c)
		return in.Commit()
	}
	return c.submit(ctx)
}

// EnterTransaction implements [catalog.Queues].
func (o *port) EnterTransaction(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	r.Process = o.p.alias(r.Process)
	c := o.write(fault.EnterTransaction, r.Name, r.TS)
	c.request = r
	in := insideOf(ctx)
	if in == nil {
		return catalog.Lock{}, fmt.Errorf("enter %q: %w", r.Name, catalog.ErrNoTransactions)
	}
	c.inside = in
	within := context.WithoutCancel(ctx)
	var l catalog.Lock
	c.do = func() (err error) {
		l, err = o.store().EnterTransaction(within, r)
		return err
	}
	c.show = func() string { return showLock(l) }
	err := c.submit(ctx)
	switch {
	case errors.Is(err, catalog.ErrUnknownOutcome) || errors.Is(err, catalog.ErrUnavailable):
		return catalog.Lock{}, errTransient{err}
	case err != nil:
		return catalog.Lock{}, err
	}
	in.locks = append(in.locks, r.Name)
	in.passes[r.Name] = l
	return l, nil
}

// commits checks a commit at its instant:
//   - The process holds the lock under which the transaction runs. Its fence is not too small (I5).
//   - No guard is trusted for a lock that the transaction has acquired (I1).
//   - The fence of such a lock is larger than all its earlier fences (I2).
func (o *oracle) commits(c *call) {
	in := c.inside
	if in.Over() {
		return
	}
	if h := in.held; h != nil {
		l, _ := o.w.store.lockAsOf(h.name, nil)
		if _, holds := l.HeldBy(h.session()); !holds {
			o.violated("I5", "a transaction of %s commits under %q, which it does not hold", c.p, h.name)
		}
		if last := o.accepted[h.name]; h.how.mode() == catalog.Exclusive && h.guard.Fence() < last {
			o.violated("I5", "a transaction of %s commits under %q with fence %d after fence %d", c.p,
				h.name, h.guard.Fence(), last)
		}
		o.accepted[h.name] = max(o.accepted[h.name], h.guard.Fence())
	}
	for name, l := range in.passes {
		o.mu.Lock()
		open := o.open
		o.mu.Unlock()
		for _, h := range open {
			if h.name == name && !h.p.Dead && o.trusted(h) {
				o.violated("I1", "a transaction of %s commits under %q, which %s trusts", c.p, name, h.p)
			}
		}
		o.passed(c.p, name, l.Fence)
	}
}

// passed checks I2 for a lock that a transaction has acquired.
func (o *oracle) passed(p *process, name string, fence int64) {
	handed := o.handed[name]
	if handed == nil {
		handed = []int64{0, 0}
		o.handed[name] = handed
	}
	if fence <= handed[0] {
		o.violated("I2", "a transaction of %s holds %q with fence %d after fence %d", p, name, fence,
			handed[0])
	}
	handed[0], handed[1] = max(handed[0], fence), max(handed[1], fence)
	o.accepted[name] = max(o.accepted[name], fence)
}

// InTransaction works for d in a transaction under a guard. limit is the longest time for the call.
// The lease is renewed in the transaction. Without a fault the work runs at most twice.
func (u *User) InTransaction(h *Held, d, limit time.Duration, nested bool) {
	ctx, end := u.bounded(h.name, limit)
	defer end()
	runs, struck := 0, u.p.struck
	err := h.guard.InTransaction(ctx, func(ctx context.Context) error {
		if in := insideOf(ctx); in != nil {
			in.held = h
		}
		if runs++; runs > 2 && u.p.struck == struck {
			u.p.w.judge.say(
				news{p: u.p, wrong: fmt.Sprintf("work under %s runs for the %d. time", h.name, runs)})
		}
		if h.how.Lease > 0 {
			if err := h.guard.Renew(ctx); err != nil {
				return err
			}
		}
		if nested {
			since, struck := u.p.w.Now(), u.p.struck
			err := h.guard.InTransaction(ctx, func(context.Context) error { return nil })
			if err == nil || u.p.w.Now() > since && u.p.struck == struck {
				u.p.w.judge.say(news{p: u.p, wrong: "a transaction under " + h.name +
					" waits for the one around it"})
			}
		}
		clock.Sleep(u.p.Clock, d, ctx.Done())
		return nil
	})
	if err != nil {
		u.p.w.log.told("%s has no transaction under %q", u.p, h.name)
	}
}

// LockInTransaction takes a lock inside a transaction and works for d.
func (u *User) LockInTransaction(name string, d, limit time.Duration) {
	ctx, end := u.bounded(name, limit)
	defer end()
	err := u.p.port.transaction(ctx, func(ctx context.Context) error {
		if err := u.m.Lock(name).LockInTransaction(ctx, distlock.Label(u.label)); err != nil {
			return err
		}
		clock.Sleep(u.p.Clock, d, ctx.Done())
		return nil
	})
	if err != nil {
		u.p.w.log.failed(u, name, err)
	}
}

// bounded returns the context of a call that must return when the context ends. It notes the call
// for the oracle.
func (u *User) bounded(name string, limit time.Duration) (ctx context.Context, end func()) {
	how := How{Wait: limit, Context: true}
	a := u.attempt(name, how)
	a.waits = false
	ctx, cancel := u.context(how, a)
	label := u.label + " in a transaction"
	u.nested++
	label = fmt.Sprint(label, u.nested)
	u.p.w.judge.begin(u.p, label, a)
	return ctx, func() {
		u.nested--
		cancel()
		u.p.w.judge.forget(u.p, label)
	}
}

// forget ends a call that needs no further checks.
func (o *oracle) forget(p *process, label string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.attempts[p], label)
}
