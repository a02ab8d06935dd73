// Package claim gives the rows of a collection to workers, each row to one of them at a time: the
// SKIP LOCKED of MongoDB. A row is a document of any collection. The package keeps one field in it,
// see [Config].Field, and writes no other. docs/claim.md has the cases, the clocks and the costs.
//
// A free worker claims one row with one command, the beginning of an attempt; another records its
// end.
//
// # Limits
//
// Work is done at least once, not exactly once: a process may die after the work and before its
// record. Work that must happen once belongs into [Row.DoneWith], or must refuse a smaller
// [Row.Fence] than it has seen. A handler must not replace its own document: the field goes with
// it.
//
// # Guarantees
//
// A claim belongs to a process, not to a span of time. Each process holds one lock of package
// distlock, its slot; every row that it claims names the slot, the lock session and the fence.
// Another process may have the row when a later holder has the slot: the process gave it back, or
// is dead by the takeover rule. A handler's context ends when the slot is lost, before that, under
// the assumptions of package distlock. All processes of a queue have one
// [distlock.Config].Database.
//
// Every command that ends a claim names its session and its batch: that of a claim that is over
// matches no row. A failed end is repeated. A claim with an unknown outcome is given back before
// the next one.
//
// # The end of an attempt
//
//	nil                    the row is done
//	an error, a panic      again after a pause that grows, dead after MaxAttempts
//	[RetryAfter](d, err)   again after d
//	[Snooze](d)            again after d; the attempt does not count
//	[Discard](err)         dead
//	the process dies       as an error, with the text "process died"
//
// An error of a handler whose context ended for another reason than Timeout gives the row back,
// without an attempt. No row is dead with fewer than MaxAttempts attempts, except by Discard and
// Cancel.
//
// # Chains
//
// With [Config].Key the rows with one value in that field are a chain: one of them is worked on at
// a time, in the order of Due, or else of _id. A row holds the key from its first claim until it is
// done or dead, also while it waits for a retry. A unique index enforces it. Rows without the field
// are in no chain, null is a value, and a row with a list there is never claimed. A handler must
// not change the key of its row. Queues of one collection with the same Key and Field share its
// chains.
package claim
