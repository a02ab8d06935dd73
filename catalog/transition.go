package catalog

import (
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Transition is one kind of change of a lock document: a value that names the lock and defines
// the condition, the change and the errors. Package transition has all of them.
type Transition interface {
	// Op returns the operation.
	Op() Op
	// On returns the name of the lock.
	On() string
	// Next returns the change of a lock at an instant of the server's clock; the zero Change when
	// there is no field to write. A lock without a document is the zero Lock with a name.
	Next(l Lock, now time.Time) (Change, error)
}

// A Change lists the fields that a transition sets, in the order of their names, and those that it
// removes. The store itself raises rev.
type Change struct {
	Set   bson.D
	Unset []string
	// Grants are the sessions that became holders.
	Grants []Grant
}

// Nothing reports whether the change is empty.
func (c Change) Nothing() bool { return len(c.Set) == 0 && len(c.Unset) == 0 }

// NextRev returns the rev that the document has after the change. It rises, so that a delayed write
// does not match the number that it has read. The earlier values of a rev that cannot be raised are
// unknown. Such a rev restarts at 1 where the change writes another session or state, since the
// filter of a delayed write contains these as well; else it stays, and ok is false.
func (c *Change) NextRev(rev bson.RawValue) (next int64, ok bool) {
	f, isDouble := rev.DoubleOK() // a shell writes it so
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

// transactionUnder is the context key of the transaction under a lock.
type transactionUnder struct{ Session }

// WithTransaction returns a context that carries tx, a value of the store, as the transaction under
// the lock that s holds. A store passes it to the function that [Transactions.Transact] runs.
func WithTransaction(ctx context.Context, s Session, tx any) context.Context {
	return context.WithValue(ctx, transactionUnder{s}, tx)
}

// TransactionUnder returns the transaction, under the lock that s holds, of which a command with
// this context is a part; nil when it is outside of one.
func TransactionUnder(ctx context.Context, s Session) any { return ctx.Value(transactionUnder{s}) }

// A PingChange is one kind of change of a ping document, other than a ping: a value that names the
// process and defines the condition, the change and the errors. Package transition has all of them.
type PingChange interface {
	// Op returns the operation.
	Op() Op
	// On returns the process whose document the change is for.
	On() string
	// Update returns the change. Errors: ErrNoMatch when there is no document that it would match.
	Update() (PingUpdate, error)
}

// A PingUpdate is a conditional write of a ping document. It does not match a condemned document. A
// field may be a path into a subdocument, as "sight.at".
type PingUpdate struct {
	Equal  bson.D   // fields with these values, numbers (int64) or dates
	Absent []string // fields that are not there

	Set   bson.D
	Dates []string // fields that get the server's clock
	Unset []string

	// Makes inserts the document if it does not exist.
	Makes bool
	// Removes deletes the document. A missing document is no error then.
	Removes bool
}

// Prunable reports whether [Pings.PruneLocks] may delete a lock document, and returns the session
// and rev for the filter of the deletion. Such a document was written by this module, is well
// formed, and contains no state that a later document of the name needs.
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
