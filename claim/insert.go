package claim

import (
	"context"
	"fmt"
	"unicode/utf8"
)

// mostKey bounds a key of Insert, as old servers bound what an index has.
const mostKey = 900

// Insert adds a document unless there is one with this key, and reports whether it did: so whoever
// asks for the same work twice has it once. A key belongs to the collection and [Config.Field]; it
// is taken as long as its document is there, done or not: with Config.DeleteDone until the row is
// done, with Config.KeepDone for so long after it was, else for ever; a handler that replaces its
// document frees it. At most 900 bytes. Called with the context of DoneWith it belongs to that
// transaction.
//
// One command, and at the first call of a process two more for a unique index on claim.unique;
// in DoneWith that begins the transaction anew.
// A sharded collection can have that only where its shard key begins with it.
//
// Errors: of a list in the field of Config.Key; a *distlock.PrivilegeError; those of the driver, then the document may be there: ask
// again.
func (q *Queue[T]) Insert(ctx context.Context, key string, doc T) (inserted bool, err error) {
	if err := usable(ctx); err != nil {
		return false, err
	}
	if key == "" || len(key) > mostKey || !utf8.ValidString(key) {
		return false, fmt.Errorf("claim: insert a row: the key must be valid UTF-8 of 1 to %d bytes", mostKey)
	}
	if err := q.e.oneKey(doc); err != nil {
		return false, fmt.Errorf("claim: insert a row with the key %q: %w", key, err)
	}
	inserted, err = q.e.store.InsertUnique(ctx, key, doc)
	if err != nil {
		return false, fmt.Errorf("claim: insert a row with the key %q: %w", key, err)
	}
	if inserted {
		signal(q.e.woken)
	}
	return inserted, nil
}
