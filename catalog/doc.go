// Package catalog defines the store of the lock subsystem: the documents of the two collections
// locks and lockpings, and the atomic operations on them. The lock manager of MongoDB 3.2 to 6.0
// had the same interface, DistLockCatalog.
//
// Two packages implement it: mongocatalog over the MongoDB driver, and memcatalog in memory with
// the same semantics. The suite in catalogtest runs on both, so a result proven with memcatalog
// holds for mongocatalog.
//
// # Guarantees of an operation
//
// Every change of a lock or ping document is one atomic step of the store, and every write is
// durable on a majority before it is reported as done. The error has one of three meanings:
//
//   - an error that matches [ErrUnknownOutcome]: the outcome is unknown. The write may have been
//     applied, or may be applied later, after the caller has returned;
//   - any other error: the write was not applied;
//   - no error: the write was applied and is durable.
//
// This package reads no clock, retries nothing, and makes no takeover decisions.
//
// # Foreign documents
//
// Other programs write to these collections too: a mongos of any generation, MongoDB's own lock
// manager, an operator. Every document is read from its raw bytes with a check of each type
// ([ParseLock], [ParsePing]). Unmarshalling into a struct is forbidden here: the Go decoder turns
// a missing state into 0, which would read as free, and a string of 24 hex digits into an
// ObjectID that no filter on the server will ever match.
//
// # Fields that only this module has
//
// In locks; mongos leaves them alone:
//
//	fence       int64, larger with every acquisition, takeover and break
//	takeoverMS  int64, the holder's takeover time
//	rev         int64, one more with every write of this module
//	leases      array of {ts, ms, n, at, local}: session, life, number of the last renewal, the
//	            server's and the holder's clock at it
//	waiters     array in the order of the queue, of {ts, process, who, why, takeoverMS, mode, since,
//	            limit}; absent when the queue is empty; bounded, see Lock.RoomFor
//	mode        "shared" or "permit"; absent for an exclusive holder
//	limit       int32, the number of permits, while the lock is used as a semaphore
//	sharers     array of all holders of a shared lock or of permits, {ts, process, who, why,
//	            takeoverMS, when, fence}; the first is also in the fields of mongos, so that any
//	            reader sees a held lock
//	yield       {ts, by, why, at}: a request to the holder with that ts to release the lock
//	grants      the sessions to which the last step granted the lock, a line each: ts fence process
//	evidence    the reason of the eviction that led to these grants
//
// In lockpings:
//
//	local       Date by the pinging process's clock
//	seq         int64, chosen by its process, larger with each ping; without it a ping is foreign
//	takeoverMS, pingMS   int64, the holder's timing
//	condemned   {by, at, evidence}, written by a contender before it takes over
//	sight       {seq, at, local, by}, the record of a contender that found no new ping of the
//	            process; the next ping removes it
package catalog
