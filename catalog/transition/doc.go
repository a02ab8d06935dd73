// Package transition defines the changes of lock and ping documents, as pure functions without a
// store or a clock. memcatalog applies the changes under a mutex, and mongocatalog by
// compare-and-set. For common cases mongocatalog has single commands, and tests compare them with
// these functions.
//
// Every change of the queue has the same four steps:
//
//  1. A session leaves, because it was released, gave up or was evicted.
//  2. A session enters at the end of the queue. If it was queued earlier and has lost its place, it
//     enters ahead of the waiters that came later.
//  3. The first waiters become holders, as many as the present holders allow. Each has a new fence.
//  4. If the session that entered must not wait, and did not become a holder, the document stays
//     unchanged.
//
// So a free lock is granted to the first waiter, and no waiter overtakes an earlier one. For
// example, a reader waits behind an earlier writer, even while other readers hold the lock.
//
// An exclusive holder is in the top-level fields, like in a document of mongos. All holders of a
// shared lock or of permits are in the field sharers. The first of them is in the top-level fields
// too.
package transition
