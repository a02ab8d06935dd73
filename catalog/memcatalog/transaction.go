package memcatalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// TransactionLifetime is the time limit of a transaction, like a server's
// transactionLifetimeLimitSeconds. After that time, the first writer that waits for the transaction
// aborts it.
const TransactionLifetime = time.Minute

// ErrConflict means that a transaction must run again. There are three causes: another open
// transaction wrote the document, the document changed after this transaction began, or this
// transaction is over. The error has the label TransientTransactionError.
var ErrConflict = errors.New("memcatalog: write conflict")

// A conflictError matches ErrConflict and has the label that the driver uses.
type conflictError struct{ why string }

func (e conflictError) Error() string             { return "memcatalog: write conflict: " + e.why }
func (e conflictError) Is(target error) bool      { return target == ErrConflict }
func (conflictError) HasErrorLabel(l string) bool { return l == "TransientTransactionError" }

// A Transaction reads the locks as they were when it began. Other readers see its writes after the
// commit. Between its first write to a document and its end, other transactions cannot write that
// document: they fail with ErrConflict. Writes outside of transactions wait. Only one goroutine may
// use a Transaction.
type Transaction struct {
	c     *Catalog
	start time.Time // by the server's clock
	seen  table     // the locks at the beginning

	over   chan struct{} // closed at the end
	writes table         // guarded by c.mu; nil after the end
}

type transactionKey struct{}

// Begin begins a transaction. The caller must call Commit or Abort.
func (c *Catalog) Begin() *Transaction {
	start := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Transaction{
		c: c, start: start, seen: maps.Clone(c.locks), over: make(chan struct{}), writes: table{},
	}
}

// Context returns a context that carries the transaction, like the driver's session context.
func (t *Transaction) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, transactionKey{}, t)
}

// Commit makes all writes visible at the same instant. If the transaction is already over, for
// example by its time limit, Commit returns ErrConflict.
func (t *Transaction) Commit() error {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.writes == nil {
		return conflictError{"the transaction has ended"}
	}
	maps.Copy(t.c.locks, t.writes)
	t.end()
	return nil
}

// Abort ends the transaction and discards its writes. If the transaction is already over, Abort has
// no effect.
func (t *Transaction) Abort() {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.writes != nil {
		t.end()
	}
}

// Over reports whether the transaction is committed or aborted.
func (t *Transaction) Over() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.writes == nil
}

// end ends the transaction and wakes the writers that wait for its documents. The caller holds
// c.mu.
func (t *Transaction) end() {
	for key := range t.writes {
		delete(t.c.locked, key)
	}
	t.writes = nil
	close(t.over)
}

// read returns a document as the transaction sees it. The caller holds c.mu.
func (t *Transaction) read(key string) *stored {
	if doc := t.writes[key]; doc != nil {
		return doc
	}
	return t.seen[key]
}

// write writes a document as part of the transaction. The caller holds c.mu.
func (t *Transaction) write(key string, doc fields, change catalog.Change) error {
	switch other := t.c.locked[key]; {
	case t.writes == nil:
		return conflictError{"the transaction has ended"}
	case other != nil && other != t:
		return conflictError{"another transaction has written the document"}
	case t.c.locks[key] != t.seen[key]:
		return conflictError{"the document was written after the transaction began"}
	}
	t.c.locked[key] = t
	t.writes[key] = storedLock(doc.changed(change))
	return nil
}

// forWrite locks mu for a write to a lock document. If an open transaction wrote the document,
// forWrite first waits until the transaction ends. If ctx ends during the wait, forWrite returns an
// error and does not lock mu.
func (c *Catalog) forWrite(ctx context.Context, name string) error {
	key := stringKey(name)
	for {
		c.mu.Lock()
		t := c.locked[key]
		if t == nil {
			return nil
		}
		c.mu.Unlock()
		waits, cancel := context.WithTimeout(ctx, t.left())
		select {
		case <-t.over:
		case <-waits.Done():
		}
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.left() <= 0 {
			t.Abort()
		}
	}
}

// left returns the remaining time of the transaction.
func (t *Transaction) left() time.Duration { return TransactionLifetime - t.c.now().Sub(t.start) }

// Busy reports whether a write to the lock must wait for a transaction. If that transaction has
// exceeded its time limit, Busy aborts it and returns false.
func (c *Catalog) Busy(name string) bool {
	c.mu.Lock()
	t := c.locked[stringKey(name)]
	c.mu.Unlock()
	if t != nil && t.left() <= 0 {
		t.Abort()
		return false
	}
	return t != nil
}

// conflictPause is the pause before a transaction runs again after a conflict.
const conflictPause = 5 * time.Millisecond

// WithTransaction calls the given function in a transaction and commits the transaction, like the
// driver's Session.WithTransaction. After a conflict, it calls the function again, until ctx is
// done. Any other error of the function ends the transaction and is returned.
func (c *Catalog) WithTransaction(ctx context.Context, work func(ctx context.Context) error) error {
	for {
		err := c.transactOnce(ctx, work)
		var labeled interface{ HasErrorLabel(string) bool }
		if !errors.As(err, &labeled) || !labeled.HasErrorLabel("TransientTransactionError") {
			return err
		}
		if !clock.Sleep(clock.System(), conflictPause, ctx.Done()) {
			return fmt.Errorf("%w: %s", context.Cause(ctx), err) // without the label
		}
	}
}

func (c *Catalog) transactOnce(ctx context.Context, work func(ctx context.Context) error) error {
	t := c.Begin()
	defer t.Abort()
	if err := work(t.Context(ctx)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.Commit()
}

// Transact is documented in [catalog.Transactions]. Only writes to locks are part of the
// transaction.
func (c *Catalog) Transact(ctx context.Context, s catalog.Session,
	run func(ctx context.Context) error) error {
	const op = catalog.OpTransact
	if err := ctx.Err(); err != nil {
		return failed(op, s.Name, err)
	}
	ran := false
	return c.WithTransaction(ctx, func(ctx context.Context) error {
		first := ran
		ran = true
		if first {
			if err := c.Touch(ctx, s); err != nil {
				return err
			}
		}
		err := run(catalog.WithTransaction(ctx, s, ctx.Value(transactionKey{})))
		if err != nil || first {
			return err
		}
		return c.Touch(ctx, s)
	})
}

// applyIn applies a transition inside a transaction. It returns the lock after the change.
func (c *Catalog) applyIn(in *Transaction, t catalog.Transition) (l catalog.Lock, err error) {
	now, key := serverDate(c.now()), stringKey(t.On())
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := in.read(key).fields()
	if _, makes := t.(passage); doc == nil && makes {
		doc = blank(t.On())
	}
	_, change, err := c.decide(doc, t, now)
	if err == nil {
		err = in.write(key, doc, change)
	}
	if err != nil {
		return l, failed(t.Op(), t.On(), err)
	}
	after := in.writes[key]
	if after.bad != nil { // the fence exceeds its limit
		return l, failed(t.Op(), t.On(), after.bad)
	}
	return after.lock, nil
}

// A touch changes only the field rev, on the condition that the session holds the lock.
type touch struct{ catalog.Session }

func (touch) Op() catalog.Op { return catalog.OpTransact }

func (t touch) Next(l catalog.Lock, _ time.Time) (c catalog.Change, err error) {
	if _, holds := l.HeldBy(t.TS); !holds {
		err = catalog.ErrNoMatch
	}
	return c, err
}

// Touch raises the field rev of a lock document inside the transaction that ctx carries. Errors:
// [catalog.ErrNoMatch] if the session s does not hold the lock; ErrConflict;
// [catalog.ErrNoTransactions] if ctx carries no transaction; *[catalog.MalformedError].
func (c *Catalog) Touch(ctx context.Context, s catalog.Session) error {
	t, _ := ctx.Value(transactionKey{}).(*Transaction)
	if t == nil {
		return catalog.ErrNoTransactions
	}
	_, err := c.applyIn(t, touch{s})
	return err
}

// A passage acquires a free lock for the rest of the transaction.
type passage struct{ catalog.Request }

func (passage) Op() catalog.Op { return catalog.OpEnterTransaction }

func (t passage) Next(l catalog.Lock, now time.Time) (c catalog.Change, err error) {
	if l.Held || len(l.Waiters) > 0 {
		return c, catalog.ErrNotFree
	}
	return transition.Passage(l, t.Request, now), nil
}

// EnterTransaction is documented in [catalog.Queues].
func (c *Catalog) EnterTransaction(ctx context.Context, r catalog.Request) (catalog.Lock, error) {
	t, _ := ctx.Value(transactionKey{}).(*Transaction)
	err := ctx.Err()
	if err == nil && t == nil {
		err = fmt.Errorf("%w: the context carries no transaction", catalog.ErrNoTransactions)
	}
	if err != nil {
		return catalog.Lock{}, failed(catalog.OpEnterTransaction, r.Name, err)
	}
	return c.applyIn(t, passage{r})
}
