// Package claim gives the rows of a collection to workers, each row to one worker at a time, like
// SKIP LOCKED in SQL. A row is a document of any collection. The package keeps its state in one
// field of the document, see [Config].Field, and writes no other field. docs/claim.md has the
// cases, the clocks and the costs.
//
// A free worker claims one row with one command, which begins an attempt. A second command records
// the end of the attempt.
//
// # Limits
//
// Work is done at least once, not exactly once: a process may die after the work and before it
// records the end. If work must happen only once, do it in [Row.DoneWith], or let the resource
// refuse a [Row.Fence] that is smaller than an earlier one. A handler must not replace its own
// document, because that removes the field.
//
// # Guarantees
//
// A claim belongs to a process and has no time limit. Each process holds one lock of package
// distlock, its slot. A claimed row names the slot, the lock session and the fence of its process.
// Another process can take over the row only after it has acquired the slot. It can acquire the
// slot only if the first process has released it, or is dead. When a process loses its slot, the
// contexts of its handlers end. Under the assumptions of package distlock, they end before another
// process can take over. All processes of a queue must have the same [distlock.Config].Database.
//
// Every command that ends a claim names the claim. If the claim has already ended, the command
// changes nothing. If the command fails, it is repeated. A claim with an unknown outcome is given
// back before the process claims again.
//
// # The end of an attempt
//
//	nil                    the row is done
//	an error or a panic    the row is retried after a growing pause, and dead after MaxAttempts
//	[RetryAfter](d, err)   like an error, with the pause d
//	[Snooze](d)            the row is retried after d, and the attempt does not count
//	[Discard](err)         the row is dead
//	the process dies       like an error, with the text "process died"
//
// If a handler returns an error after its context ended, the row is given back and the attempt does
// not count, except after Timeout and Cancel. Only Discard and Cancel make a row dead before
// MaxAttempts attempts.
//
// # Chains
//
// With [Config].Key, the rows with the same value in that field are a chain. The rows of a chain
// are worked on one at a time, in the order of Due, or of _id without Due. A row holds the key from
// its first claim until it is done or dead, even while it waits for a retry. A unique index
// enforces this.
//
// A row without the field is in no chain. Null is a value. A row with a list in the field is never
// claimed. A handler must not change the key of its row. Queues of one collection with the same Key
// and Field share their chains.
package claim
