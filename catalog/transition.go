package catalog

import (
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Transition is a change of one lock document. It defines the conditions, the change and the
// errors. All implementations are in package transition.
type Transition interface {
	// Op returns the operation.
	Op() Op
	// On returns the name of the lock.
	On() string
	// Next returns the change for the lock l. now is the server's clock. The change is zero when
	// there is nothing to write. If the document does not exist, l has only a name.
	Next(l Lock, now time.Time) (Change, error)
}

// A Change is the result of a transition: the fields to set, in the order of their names, and the
// fields to remove. It does not contain rev, which the store raises.
type Change struct {
	Set   bson.D
	Unset []string
	// Grants are the sessions that became holders.
	Grants []Grant
}

// Nothing reports whether the change is empty.
func (c Change) Nothing() bool { return len(c.Set) == 0 && len(c.Unset) == 0 }

// NextRev returns the rev of the document after the change. It is larger than before, so a delayed
// write does not match: its filter has an earlier rev. A missing rev becomes 1. An invalid rev that
// cannot be raised becomes 1 if the change writes the session or the state, because these fields
// are in the filter too. Otherwise ok is false, and the document keeps its rev.
func (c *Change) NextRev(rev bson.RawValue) (next int64, ok bool) {
	f, isDouble := rev.DoubleOK() // a shell writes numbers as doubles
	n, isInt := rev.AsInt64OK()
	switch {
	case isDouble && f >= 0 && f < MaxCount:
		return int64(f) + 1, true
	case !isDouble && isInt && n >= 0 && n < math.MaxInt64:
		return n + 1, true
	}
	moves := func(e bson.E) bool { return e.Key == "state" || e.Key == "ts" }
	return 1, rev.Type == 0 || slices.ContainsFunc(c.Set, moves)
}

// transactionUnder is the context key of the transaction under a session's lock.
type transactionUnder struct{ Session }

// WithTransaction returns a context that carries the transaction tx under the lock of s. The store
// defines the type of tx. It passes the context to the argument run of [Transactions.Transact].
func WithTransaction(ctx context.Context, s Session, tx any) context.Context {
	return context.WithValue(ctx, transactionUnder{s}, tx)
}

// TransactionUnder returns the transaction that ctx carries under the lock of s, or nil.
func TransactionUnder(ctx context.Context, s Session) any { return ctx.Value(transactionUnder{s}) }

// A PingChange is a change of one ping document, other than a ping. It defines the conditions, the
// change and the errors. All implementations are in package transition.
type PingChange interface {
	// Op returns the operation.
	Op() Op
	// On returns the process id of the document.
	On() string
	// Update returns the change. It returns ErrNoMatch when no document could match.
	Update() (PingUpdate, error)
}

// A PingUpdate is a conditional write of a ping document. It does not match the document of a
// condemned process. A field may be a path into a subdocument, such as "sight.at".
type PingUpdate struct {
	Equal  bson.D   // required fields and their values: numbers (int64) or dates
	Absent []string // fields that must not exist

	Set   bson.D
	Dates []string // fields that are set to the server's clock
	Unset []string

	// Makes is set to insert the document if it is missing.
	Makes bool
	// Removes is set to delete the document. A missing document is not an error.
	Removes bool
}

// Prunable reports whether [Pings.PruneLocks] may delete a lock document. This module wrote such a
// document, and no later holder needs its values. Prunable also returns the session and rev for the
// filter of the deletion.
func Prunable(raw bson.Raw, before time.Time) (s Session, rev int64, ok bool) {
	l, bad := ParseLock(raw)
	if bad != nil || l.Held || len(l.Waiters)+len(l.Sharers) > 0 || l.TS.IsZero() ||
		l.When.IsZero() || !l.When.Before(before) || l.Fence >= before.UnixMilli() {
		return s, 0, false
	}
	v := fieldsOf(raw).lookup("rev")
	rev, ok = v.AsInt64OK()
	return l.Session(), rev, ok && rev > 0
}
