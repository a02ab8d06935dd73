package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// Each write in a transaction is a command, and so is the commit.

const (
	opTouch  fault.Op = "touch" // a guard's transaction writes to the lock document
	opCommit fault.Op = "commit"
)

// retryPause is the pause before a blocked write is tried again, and the pause before a transaction
// is repeated after a conflict.
const retryPause = 10 * time.Millisecond

// errTransient is the error of a transaction that was aborted and may run again.
type errTransient struct{ error }

func (e errTransient) Unwrap() error                 { return e.error }
func (errTransient) HasErrorLabel(label string) bool { return label == "TransientTransactionError" }

func transient(err error) bool {
	var labeled interface{ HasErrorLabel(string) bool }
	return errors.As(err, &labeled) && labeled.HasErrorLabel("TransientTransactionError")
}

type transaction struct {
	*memcatalog.Transaction
	locks  []string         // lock documents that it has written
	fences map[string]int64 // fences of locks that it holds through EnterTransaction
	held   *Held            // lock of the guard under which it runs, or nil
	renews *call            // last renewal of that lock's lease
}

type transactionKey struct{}

func transactionOf(ctx context.Context) *transaction {
	in, _ := ctx.Value(transactionKey{}).(*transaction)
	return in
}

// Transact implements [catalog.Transactions]. The first run of a transaction writes the lock
// document after the work of the caller. Each later run writes the lock document before that work.
func (o *port) Transact(ctx context.Context, s catalog.Session,
	run func(context.Context) error) error {
	ran := false
	return o.transaction(ctx, func(ctx context.Context) error {
		in, again := transactionOf(ctx), ran
		touch := func() error {
			c := &call{p: o.p, op: opTouch, subject: s.Name, writes: true, ts: s.TS}
			c.do = func() error { return o.p.w.store.Touch(in.Context(background), s) }
			return c.submitIn(ctx, in)
		}
		if again {
			if err := touch(); err != nil {
				return err
			}
		}
		ran = true
		if err := run(catalog.WithTransaction(ctx, s, in)); err != nil || again {
			return err
		}
		return touch()
	})
}

// submitIn sends a command of a transaction. If the command is refused or its outcome is unknown,
// the error aborts the transaction.
func (c *call) submitIn(ctx context.Context, in *transaction) error {
	c.transaction = in
	err := c.submit(ctx)
	if errors.Is(err, catalog.ErrUnknownOutcome) || errors.Is(err, catalog.ErrUnavailable) {
		return errTransient{err}
	}
	in.locks = append(in.locks, c.subject)
	return err
}

// transaction calls the given function in a transaction and commits the transaction. After a
// transient error, such as a conflict, it starts a new transaction, until ctx is done.
func (o *port) transaction(ctx context.Context, work func(ctx context.Context) error) error {
	for {
		err := o.transactOnce(ctx, work)
		if !transient(err) {
			return err
		}
		if !clock.Sleep(o.p.Clock, retryPause, ctx.Done()) {
			return fmt.Errorf("%w: %v", context.Cause(ctx), err)
		}
	}
}

func (o *port) transactOnce(ctx context.Context, work func(ctx context.Context) error) error {
	store := o.p.w.store
	in := &transaction{Transaction: store.Begin(), fences: map[string]int64{}}
	defer in.Abort()
	within := context.WithValue(in.Context(ctx), transactionKey{}, in)
	if err := work(within); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	}
	c := &call{p: o.p, op: opCommit, subject: in.locks[0], writes: true, transaction: in}
	c.do = func() error {
		o.p.w.oracle.checkCommit(c)
		return in.Commit()
	}
	return c.submit(ctx)
}

// EnterTransaction implements [catalog.Queues].
func (o *port) EnterTransaction(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	in := transactionOf(ctx)
	if in == nil {
		return catalog.Lock{}, fmt.Errorf("enter %q: %w", r.Name, catalog.ErrNoTransactions)
	}
	c := &call{p: o.p, op: fault.EnterTransaction, subject: r.Name, writes: true, ts: r.TS, request: r}
	within := context.WithoutCancel(ctx)
	var l catalog.Lock
	c.do = func() (err error) {
		l, err = o.p.w.store.EnterTransaction(within, r)
		return err
	}
	if err := c.submitIn(ctx, in); err != nil {
		return catalog.Lock{}, err
	}
	in.fences[r.Name] = l.Fence
	return l, nil
}

// checkCommit checks a commit:
//   - I5: If the transaction runs under a guard, the session of the guard holds the lock.
//     If the guard is exclusive, its fence is not smaller than the fence of an earlier
//     commit.
//   - I1: If the transaction acquires a lock, no guard of that lock is trusted.
//   - I2: The fence of an acquired lock is larger than all earlier fences of that lock.
func (o *oracle) checkCommit(c *call) {
	in := c.transaction
	if in.Over() {
		return
	}
	if h := in.held; h != nil {
		l, _ := o.w.store.lock(h.name)
		if _, holds := l.HeldBy(h.session()); !holds {
			o.violated("I5", "a transaction of %s commits under %q, which it does not hold", c.p, h.name)
		}
		fence, last := h.guard.Fence(), o.commitFences[h.name]
		if h.how.mode() == catalog.Exclusive && fence < last {
			o.violated("I5", "a transaction of %s commits under %q with fence %d after fence %d", c.p,
				h.name, fence, last)
		}
		o.commitFences[h.name] = max(last, fence)
	}
	for name, fence := range in.fences {
		o.checkNotTrusted(name, fmt.Sprintf("a transaction of %s", c.p))
		if last := o.guardFences[name].all; fence <= last {
			o.violated("I2", "a transaction of %s holds %q with fence %d after fence %d", c.p, name, fence,
				last)
		}
		last := o.guardFences[name]
		o.guardFences[name] = fences{max(last.all, fence), max(last.exclusive, fence)}
		o.commitFences[name] = max(o.commitFences[name], fence)
	}
}

// InTransaction runs a transaction under a guard. The transaction works for d. If the lock has a
// lease, the transaction renews the lease. If nested is set, the transaction begins a second
// transaction, which must fail immediately. The call must return within limit.
func (u *User) InTransaction(h *Held, d, limit time.Duration, nested bool) {
	ctx, end := u.bounded(h.name, limit)
	defer end()
	err := h.guard.InTransaction(ctx, func(ctx context.Context) error {
		if in := transactionOf(ctx); in != nil {
			in.held = h
		}
		if h.how.Lease > 0 {
			if err := h.guard.Renew(ctx); err != nil {
				return err
			}
		}
		if nested {
			since, faults := u.p.w.Now(), u.p.faults
			err := h.guard.InTransaction(ctx, func(context.Context) error { return nil })
			if err == nil || u.p.w.Now() > since && u.p.faults == faults {
				u.p.w.Post(u.p.Index, "", func() {
					u.p.w.oracle.violated("truth", "%s: a transaction under %q waits for the outer transaction",
						u.p, h.name)
				})
			}
		}
		clock.Sleep(u.p.Clock, d, ctx.Done())
		return nil
	})
	u.p.w.log.add("%s has ended a transaction under %q: %v", u.p, h.name, err)
}

// LockInTransaction acquires a lock in a transaction and works for d. The call must return within
// limit.
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
	u.p.w.log.add("%s has ended a transaction with %q: %v", u.p, name, err)
}

// bounded returns a context that ends after limit. It also returns a function to call when the work
// is done. The oracle checks that this call is in time.
func (u *User) bounded(name string, limit time.Duration) (ctx context.Context, end func()) {
	how := How{Wait: limit, Context: true}
	a := u.attempt(name, how)
	a.waits, a.label = false, ""
	ctx, cancel := u.context(how, a)
	u.p.w.oracle.begin(a)
	return ctx, func() {
		cancel()
		u.p.w.oracle.forget(a)
	}
}
