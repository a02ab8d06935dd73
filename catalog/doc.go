// Package catalog is what the lock subsystem knows of its store: the documents of the two
// collections locks and lockpings, and the few atomic operations on them. MongoDB's own lock
// manager of 3.2 to 6.0 had the same seam and called it DistLockCatalog.
//
// Two packages implement it: mongocatalog over the MongoDB driver, and memcatalog in memory with
// the same semantics. The suite in catalogtest runs on both, so that what is proven over the
// memory one counts for the other.
//
// # What an operation promises
//
// Every operation is one step that the store carries out as a whole, for one document, and every
// write is durable on a majority before it is reported as done. An error says which of three
// things happened:
//
//   - an error that matches [ErrUnknownOutcome]: nobody knows. The write may have been applied,
//     or may be applied later, after the caller has gone;
//   - any other error: certainly not applied;
//   - no error: certainly applied, and durable.
//
// Nothing in this package looks at a clock, retries, or decides. It does not know what a
// takeover is.
//
// # Foreign documents
//
// Others write to these collections too: a mongos of any generation, MongoDB's own lock manager,
// an operator's hand. Every document is read from its raw bytes with a check of each type
// ([ParseLock], [ParsePing]). Unmarshalling into a struct is forbidden here: the Go decoder turns
// a missing state into 0, which would read as free, and a string of 24 hex digits into an
// ObjectID that no filter on the server will ever match.
//
// # Fields that only this module has
//
// In locks; mongos leaves them alone:
//
//	fence       int64, one more with every acquisition, takeover and break
//	takeoverMS  int64, the holder's takeover time
//	rev         int64, one more with every write of this module
//	leases      array of {ts, ms, n, at, local}: session, life, number of the last renewal, the
//	            server's and the holder's clock at it
//	waiters     array, first come first, of {ts, process, who, why, takeoverMS, mode, since, limit};
//	            absent when there is none; at most MaxWaiters
//	mode        "shared" or "permit"; absent for an exclusive holder
//	limit       int32, the permits there are, while the lock is used so
//	sharers     array of all holders of a shared lock or of permits, {ts, process, who, why,
//	            takeoverMS, when, fence}; the first stands in mongos' fields as well, so that any
//	            reader sees a held lock
//	yield       {ts, by, why, at}: who asked the holder with that ts to give the lock up
//	grants      the sessions to which the last step granted the lock, a line each: ts fence process
//	evidence    of an eviction, for these grants
//
// In lockpings:
//
//	local       Date by the pinging process's clock, a witness
//	seq         int64, chosen by its process, larger with each ping; without it a ping is foreign
//	takeoverMS, pingMS   int64, the holder's timing
//	condemned   {by, at, evidence}, written by a contender before it takes over
//	sight       {seq, at, local, by}, written once, by the first contender that sees the process
//	            silent; the next ping removes it
package catalog
