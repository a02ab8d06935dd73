// Package catalog defines the store of the locks: the documents in the collections locks and
// lockpings, and the atomic operations on them. The lock manager of MongoDB 3.2 to 6.0 had a
// similar interface, DistLockCatalog.
//
// Two packages implement the store: mongocatalog with the MongoDB driver, and memcatalog in memory
// with the same semantics. The tests in catalogtest run on both. So a test with memcatalog is also
// valid for mongocatalog.
//
// # Guarantees of an operation
//
// Every change of a lock or ping document is atomic. A write is acknowledged only when a majority
// has stored it durably. There are three kinds of results:
//
//   - an error that matches [ErrUnknownOutcome]: the write may have been applied, or may be applied
//     later, after the operation has returned;
//   - every other error: the write was not applied;
//   - no error: the write was applied and is durable.
//
// This package reads no clock, retries nothing, and makes no takeover decisions.
//
// # Foreign documents
//
// Other programs also write to these collections: a mongos, MongoDB's own lock manager, an
// operator. These programs and their documents are called foreign. [ParseLock] and [ParsePing]
// parse the raw bytes of every document and check each type. They do not unmarshal a document into
// a struct. The Go decoder would turn a missing state into 0, which means free. It would also turn
// a string of 24 hex digits into an ObjectID, and a filter with that ObjectID would never match the
// document.
//
// # Fields that only this module has
//
// In locks (mongos does not change them):
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
//	            takeoverMS, when, fence}; the fields of mongos have the first sharer too, for
//	            programs that do not know sharers
//	yield       {ts, by, why, at}: a request to the holder with that ts to release the lock
//	grants      the sessions of the last grant, one per line: ts fence process
//	evidence    the reason for the eviction that led to these grants
//
// In lockpings:
//
//	local       Date, the pinging process's clock
//	seq         int64, the number of the ping; the process raises it with each ping; absent in a
//	            foreign document
//	takeoverMS, pingMS   int64, the takeover time and the ping interval of the process
//	condemned   {by, at, evidence}, written by a contender before it evicts the process
//	sight       {seq, at, local, by}, the record of a contender that found no new ping of the
//	            process; the next ping removes the record
package catalog
