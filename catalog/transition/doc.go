// Package transition defines the changes of a lock document's holders and waiters, as pure
// functions without a store or a clock. memcatalog carries them out under a mutex, and mongocatalog
// by compare-and-set. Tests compare the short commands of mongocatalog for common cases with these
// functions.
//
// Every change of the queue has the same four steps:
//
//  1. a session leaves: it was released, canceled or evicted;
//  2. a session that is not yet in the document enters at the end of the queue; a session that was
//     queued before enters ahead of later waiters;
//  3. waiters from the front of the queue become holders, as many as the present holders allow,
//     each with a new fence;
//  4. if a session that may not wait was not granted the lock, the document stays unchanged.
//
// So the queue advances while the lock is free, and no waiter is overtaken by a later one. A reader
// waits behind a writer that was queued earlier.
//
// An exclusive holder is only in the top-level fields, like in a document of mongos. All shared
// holders and holders of permits are in sharers. The first sharer is also in the top-level fields.
package transition
