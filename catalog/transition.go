package catalog

import (
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Transition is a change of one lock document, with its conditions and errors. All
// implementations are in package transition.
type Transition interface {
	// Op returns the operation.
	Op() Op
	// On returns the name of the lock.
	On() string
	// Next returns the change for the lock l. The argument now is the server's clock. If there is
	// nothing to write, the change is zero. If the document does not exist, only the name of l is set.
	Next(l Lock, now time.Time) (Change, error)
}

// A Change is the result of a transition: the fields to set, in the order of their names, and the
// fields to remove. It does not contain rev, because the store raises rev.
type Change struct {
	Set   bson.D
	Unset []string
	// Grants contains one grant for each session that became a holder.
	Grants []Grant
}

// Nothing reports whether the change is empty.
func (c Change) Nothing() bool { return len(c.Set) == 0 && len(c.Unset) == 0 }

// NextRev returns the rev of the document after the change. A valid rev rises by 1, so that
// the filter of a delayed write, which contains an earlier rev, does not match. A missing
// rev becomes 1. An invalid rev becomes 1 if the change writes the session or the state.
// That is safe, because the filter also contains the session and the state before the
// change. If the change writes neither of them, ok is false. No transition makes such a change.
func (c *Change) NextRev(rev bson.RawValue) (next int64, ok bool) {
	n, isNumber := rev.AsInt64OK() // a shell writes numbers as doubles
	if isNumber && n >= 0 && n < math.MaxInt64 {
		return n + 1, true
	}
	moves := func(e bson.E) bool { return e.Key == "state" || e.Key == "ts" }
	return 1, rev.Type == 0 || slices.ContainsFunc(c.Set, moves)
}

type transactionUnder struct{ Session }

// WithTransaction returns a context that carries a transaction under the lock of the session s. The
// store defines the type of tx. [Transactions.Transact] passes this context to the function that it
// calls.
func WithTransaction(ctx context.Context, s Session, tx any) context.Context {
	return context.WithValue(ctx, transactionUnder{s}, tx)
}

// TransactionUnder returns the transaction that ctx carries under the lock of the session s, or nil
// if there is none.
func TransactionUnder(ctx context.Context, s Session) any { return ctx.Value(transactionUnder{s}) }

// A PingChange is a change of one ping document, with its conditions and errors, other than the
// ping itself. All implementations are in package transition.
type PingChange interface {
	// Op returns the operation.
	Op() Op
	// On returns the process id of the document.
	On() string
	// Update returns the change. If no document can meet the conditions, it returns ErrNoMatch.
	Update() (PingUpdate, error)
}

// A PingUpdate is a conditional write of a ping document. It does not match the document of a
// condemned process. The name of a field may be a path, such as "sight.at".
type PingUpdate struct {
	Equal  bson.D   // required fields and their values: numbers (int64) or dates
	Absent []string // fields that must not exist

	Set   bson.D
	Dates []string // fields that are set to the server's clock
	Unset []string

	// Makes is set if the write inserts a missing document.
	Makes bool
	// Removes is set if the write deletes the document. A missing document is then not an error.
	Removes bool
}

// Prunable reports whether [Pings.PruneLocks] may delete a lock document. It also returns the
// session and the rev for the filter of the deletion.
func Prunable(raw bson.Raw, before time.Time) (s Session, rev int64, ok bool) {
	l, bad := ParseLock(raw)
	if bad != nil || l.Held || len(l.Waiters)+len(l.Sharers) > 0 || l.TS.IsZero() ||
		l.When.IsZero() || !l.When.Before(before) || l.Fence >= before.UnixMilli() {
		return s, 0, false
	}
	v := raw.Lookup("rev")
	rev, ok = v.AsInt64OK()
	return l.Session(), rev, ok && rev > 0
}
