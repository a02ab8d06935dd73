// Package catalog defines the store of the locks: the documents in the collections locks and
// lockpings, and the atomic operations on them. The lock manager of MongoDB 3.2 to 6.0 had a
// similar interface, DistLockCatalog.
//
// Two packages implement the store. Package mongocatalog uses the MongoDB driver. Package
// memcatalog keeps the documents in memory. The tests in catalogtest check that both have
// the same semantics.
//
// # Guarantees of an operation
//
// Every change of a lock or ping document is atomic. A write is acknowledged when a majority
// of the replica set has stored it durably. A write has one of three results:
//
//   - no error: the write was applied and is durable;
//   - an error that matches [ErrUnknownOutcome]: the write may have been applied, or may be
//     applied after the operation has returned;
//   - any other error: the write was not applied.
//
// Prune and Prepare send several writes. If one of them fails, the earlier writes remain.
//
// The operations do not decide about takeovers. They only check the conditions of a change.
//
// # Foreign documents
//
// Other programs also write to these collections: a mongos, MongoDB's own lock manager, or
// an operator's tool. These programs and their documents are called foreign. [ParseLock] and
// [ParsePing] check the type of each field in the raw bytes, because a decoder into Go values
// hides some faults. A missing state would become 0, which means free. A string of 24 hex
// digits would become an ObjectID. A filter with that ObjectID never matches the document.
//
// # Fields that only this module has
//
// A mongos does not change these fields of the collection locks:
//
//	fence       int64, raised by every acquisition and by Break
//	takeoverMS  int64, the holder's takeover time
//	rev         int64, raised by 1 with every write of this module
//	leases      array of {ts, ms, n, at, local}: the session, the lifetime, the number of the last
//	            renewal, and the server's and the holder's clock at that renewal
//	waiters     the queue, an array of {ts, process, who, why, takeoverMS, mode, since, limit};
//	            absent when the queue is empty; see Lock.RoomFor for its largest length
//	mode        "shared" or "permit"; absent for an exclusive holder
//	limit       int32, the number of permits, while the lock is used as a semaphore
//	sharers     array of all holders of a shared lock or of permits, {ts, process, who, why,
//	            takeoverMS, when, fence}; the first sharer is also in the top-level fields, for
//	            programs that do not know sharers
//	yield       {ts, by, why, at}: a request to the holder with that ts to release the lock
//	grants      the sessions that were granted the lock last, one per line: ts fence process
//	evidence    the reason for the eviction that led to the grants in the field grants
//
// This module adds these fields to the collection lockpings:
//
//	local       Date, the pinging process's clock
//	seq         int64, the number of the ping; the process raises it with each ping; absent in a
//	            foreign document
//	takeoverMS, pingMS   int64, the takeover time and the ping interval of the process
//	condemned   {by, at, evidence}, written by a contender before it evicts the process
//	sight       {seq, at, local, by}, written by a contender that found no new ping of the
//	            process; removed by the next ping of the process
package catalog
