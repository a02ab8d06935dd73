// Package transition defines the changes of the holders and waiters in a lock document, as pure
// functions without a store or a clock. memcatalog carries them out under a mutex, mongocatalog as
// a compare-and-set; the short commands of mongocatalog for the common cases are tested against
// them.
//
// Every change of the queue has the same four steps:
//
//  1. a session leaves: it was released, canceled or evicted;
//  2. a session enters at the end of the queue, unless it is already in the document; a session
//     that was queued before enters ahead of later ones;
//  3. as many waiters from the front of the queue as the holders allow become holders, each with a
//     new fence;
//  4. a session that only tried and was not granted the lock leaves again, and the document stays
//     unchanged.
//
// So the queue advances while the lock is free, no waiter is overtaken by a later one, and a reader
// that comes after a waiting writer waits behind it.
//
// An exclusive holder is only in the top-level fields, as mongos wrote them. All shared holders and
// holders of permits are in sharers, and the first of them is in the top-level fields as well.
package transition
