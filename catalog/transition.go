package catalog

import (
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Transition is one way in which a lock document changes: a value that names the lock and says
// what it needs, what it changes, and its errors. Package transition has them all, each once.
type Transition interface {
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
