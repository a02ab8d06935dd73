// Package transition defines the changes of lock and ping documents as pure functions, without a
// store or a clock. memcatalog applies the changes under a mutex. mongocatalog applies them by
// compare-and-set. For common cases, mongocatalog has single commands. Tests compare these commands
// with the functions of this package.
//
// Every change of the queue has the same four steps. A step may do nothing.
//
//  1. A session leaves. It is released, gives up or is evicted.
//  2. A session enters at the end of the queue. If it was queued earlier and has lost its
//     place, it enters before the waiters that were queued later.
//  3. The first waiters become holders, as many as the present holders allow. Each new
//     holder gets a new fence.
//  4. If the entering session may not be queued, and did not become a holder, the document
//     stays unchanged.
//
// So a free lock is granted to the first waiter. A waiter overtakes an earlier waiter only by
// [PutFirst]. For example, a reader waits behind an earlier writer, even while other readers hold
// the lock.
//
// An exclusive holder is in the top-level fields, as in a document of mongos. The holders of a
// shared lock or of permits are in the field sharers. The first sharer is also in the top-level
// fields.
package transition
