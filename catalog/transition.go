package catalog

import (
	"context"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Transition is one way in which a lock document changes: a value that names the lock and says
// what it needs, what it changes, and its errors. Package transition has them all, each once.
type Transition interface {
	// Op returns the operation.
	Op() Op
	// On returns the name of the lock.
	On() string
	// Next returns what the transition makes of a lock at an instant of the server's clock; nothing
	// when there is nothing to write. A lock without a document is the zero Lock with a name.
	Next(l Lock, now time.Time) (Change, error)
}

// A Change is what a transition writes: fields to set in the order of their names, and fields to
// remove. rev is left to the store.
type Change struct {
	Set   bson.D
	Unset []string
	// Grants are the sessions that became holders.
	Grants []Grant
}

// Nothing reports whether there is nothing to write.
func (c Change) Nothing() bool { return len(c.Set) == 0 && len(c.Unset) == 0 }

// NextRev is the rev that goes with a change of a document. It rises, so that no write that is late
// finds the number that it has read. Of a rev that cannot be raised nobody knows which numbers it
// had: it begins anew where the change writes another session or state, which such a write names as
// well; else it stays, and ok is false.
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

// transactionUnder is the key under which a context names the transaction under a lock.
type transactionUnder struct{ Session }

// WithTransaction returns a context that carries tx, the store's own, as the transaction under the
// lock that s holds. A store gives it to what [Transactions.Transact] runs.
func WithTransaction(ctx context.Context, s Session, tx any) context.Context {
	return context.WithValue(ctx, transactionUnder{s}, tx)
}

// TransactionUnder returns the transaction under the lock that s holds, of which a command with
// this context is a part; nil when it is one of none.
func TransactionUnder(ctx context.Context, s Session) any { return ctx.Value(transactionUnder{s}) }

// A PingChange is one way in which a ping document changes, beside a ping: a value that names the
// process and says what it needs, what it writes, and its errors. Package transition has them all,
// each once.
type PingChange interface {
	// Op returns the operation.
	Op() Op
	// On returns the process whose document the change is for.
	On() string
	// Update returns the change. Errors: ErrNoMatch when there is no document that it would match.
	Update() (PingUpdate, error)
}

// A PingUpdate is a conditional write of a ping document. A condemned document stays as it is.
// Fields may be those of a subdocument, as "sight.at".
type PingUpdate struct {
	Equal  bson.D   // fields with these values, numbers (int64) or dates
	Absent []string // fields that are not there

	Set   bson.D
	Dates []string // fields that get the server's clock
	Unset []string

	// Makes says that the document is made where there is none.
	Makes bool
	// Removes says that the document is deleted. One that is not there is no error then.
	Removes bool
}

// Prunable reports whether a lock document may be deleted by [Pings.PruneLocks], with the session
// and rev by which the deletion names it. It is one of ours, understood, with nothing in it that a
// successor would miss.
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
