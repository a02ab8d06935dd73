package catalog

import (
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Transition is a change of one lock document. It defines the condition, the change and the
// errors. Package transition has all implementations.
type Transition interface {
	// Op returns the operation.
	Op() Op
	// On returns the name of the lock.
	On() string
	// Next returns the change of the lock l; now is the server's clock. It returns the zero Change
	// when there is no field to write. A lock without a document is the zero Lock with a name.
	Next(l Lock, now time.Time) (Change, error)
}

// A Change lists the fields that a transition sets, in the order of their names, and the fields
// that it removes. The store itself raises rev.
type Change struct {
	Set   bson.D
	Unset []string
	// Grants are the sessions that became holders.
	Grants []Grant
}

// Nothing reports whether the change is empty.
func (c Change) Nothing() bool { return len(c.Set) == 0 && len(c.Unset) == 0 }

// NextRev returns the rev of the document after the change. The rev rises, so that the filter of a
// delayed write with an earlier rev does not match. A missing rev becomes 1. A damaged rev that
// cannot be raised restarts at 1 if the change writes a session or state, since the filter of a
// delayed write contains these too. Otherwise ok is false, and the rev stays.
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

// WithTransaction returns a context that carries tx, a value of the store, as the transaction under
// the lock of s. A store passes this context to the function that [Transactions.Transact] calls.
func WithTransaction(ctx context.Context, s Session, tx any) context.Context {
	return context.WithValue(ctx, transactionUnder{s}, tx)
}

// TransactionUnder returns the transaction that ctx carries under the lock of s, or nil.
func TransactionUnder(ctx context.Context, s Session) any { return ctx.Value(transactionUnder{s}) }

// A PingChange is a change of one ping document, other than a ping. It defines the condition, the
// change and the errors. Package transition has all implementations.
type PingChange interface {
	// Op returns the operation.
	Op() Op
	// On returns the process id of the document.
	On() string
	// Update returns the change. It returns ErrNoMatch when no document can match.
	Update() (PingUpdate, error)
}

// A PingUpdate is a conditional write of a ping document. It does not match a condemned document. A
// field may be a path into a subdocument, such as "sight.at".
type PingUpdate struct {
	Equal  bson.D   // required fields and their values: numbers (int64) or dates
	Absent []string // fields that must not exist

	Set   bson.D
	Dates []string // fields that are set to the server's clock
	Unset []string

	// Makes inserts a missing document.
	Makes bool
	// Removes is set to delete the document. Then a missing one is not an error.
	Removes bool
}

// Prunable reports whether [Pings.PruneLocks] may delete a lock document, and returns the session
// and rev for the deletion's filter. This module wrote such a document, and later holders of the
// lock do not need its state.
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
