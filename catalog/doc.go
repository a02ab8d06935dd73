// Package catalog defines the store of the lock subsystem: the documents of the two collections
// locks and lockpings, and the atomic operations on them. The lock manager of MongoDB 3.2 to 6.0
// had the same interface, DistLockCatalog.
//
// Two packages implement the store: mongocatalog over the MongoDB driver, and memcatalog in memory
// with the same semantics. The suite in catalogtest runs on both, so a result proven with
// memcatalog also holds for mongocatalog.
//
// # Guarantees of an operation
//
// Every change of a lock or ping document is one atomic step of the store, and every write is
// durable on a majority before it is reported as done. The error has one of three meanings:
//
//   - an error that matches [ErrUnknownOutcome]: the outcome is unknown. The write may have been
//     applied, or may be applied later, after the caller has returned;
//   - every other error: the write was not applied;
//   - no error: the write was applied and is durable.
//
// This package reads no clock, retries nothing, and makes no takeover decisions.
//
// # Foreign documents
//
// Other programs write to these collections too: a mongos, MongoDB's own lock manager, an operator.
// They and their documents are called foreign. [ParseLock] and [ParsePing] read every document from
// its raw bytes and check each type. Documents are not unmarshalled into a struct: the Go decoder
// turns a missing state into 0, which means free, and a string of 24 hex digits into an ObjectID
// that no filter on the server will ever match.
//
// # Fields that only this module has
//
// In locks (mongos does not change them):
//
//	fence       int64, raised by every acquisition, takeover and break
//	takeoverMS  int64, the holder's takeover time
//	rev         int64, raised by 1 with every write of this module
//	leases      array of {ts, ms, n, at, local}: session, life, number of the last renewal, the
//	            server's and the holder's clock at that renewal
//	waiters     the queue, an array of {ts, process, who, why, takeoverMS, mode, since, limit};
//	            absent when the queue is empty; bounded, see Lock.RoomFor
//	mode        "shared" or "permit"; absent for an exclusive holder
//	limit       int32, the number of permits, while the lock is used as a semaphore
//	sharers     array of all holders of a shared lock or of permits, {ts, process, who, why,
//	            takeoverMS, when, fence}; the first sharer is also in the fields of mongos, for
//	            readers that do not know sharers
//	yield       {ts, by, why, at}: a request to the holder with that ts to release the lock
//	grants      the sessions of the last grant, one line each: ts fence process
//	evidence    the reason of the eviction that led to these grants
//
// In lockpings:
//
//	local       Date by the pinging process's clock
//	seq         int64, chosen and raised by the process with each ping; absent in a foreign ping
//	takeoverMS, pingMS   int64, the timing of the process
//	condemned   {by, at, evidence}, written by a contender before it takes over
//	sight       {seq, at, local, by}, the record of a contender that found no new ping of the
//	            process; the next ping removes the record
package catalog
