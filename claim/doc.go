// Package claim gives the rows of a collection to workers, each row to one worker at a time, like
// SKIP LOCKED in SQL. A row is a document of any collection. The package stores the state of a row
// in one field of the document, see [Config].Field, and writes no other field. The file
// docs/claim.md describes the cases, the clocks and the costs.
//
// A free worker sends one command to claim a row, which begins an attempt. A second command records
// the end of the attempt.
//
// # Limits
//
// Work is done at least once, not exactly once: a process may die after the work and before it
// records the end. If the work must take effect only once, do it in [Row.DoneWith]. Alternatively,
// let the resource refuse a [Row.Fence] that is smaller than an earlier one. A handler must not
// replace its own document, because that removes the field Config.Field.
//
// # Guarantees
//
// A claim belongs to a process and has no time limit. Each process holds one lock of package
// distlock, its slot. A claimed row names the slot, the lock session and the fence of its process.
// Another process must acquire the slot before it can take over the row. It can acquire the slot
// only after the first process has released it, or after package distlock has found that process
// dead. When a process loses its slot, the contexts of its handlers end. Under the assumptions of
// package distlock, they end before another process can take over. All processes of a queue must
// have the same [distlock.Config].Database.
//
// Every command that ends a claim names the claim. If the claim has already ended, the command
// changes nothing. If the command fails, the process repeats it. If the outcome of a claim is
// unknown, the process gives the row back before it claims again.
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
// If Run, Serve or Close ends the context of a handler, and the handler then returns an error, the
// process gives the row back. The attempt does not count. If Config.Timeout ends the context, the
// attempt fails. If Cancel ends the context, the row becomes dead. Only Discard and Cancel make a
// row dead before MaxAttempts attempts.
//
// # Chains
//
// With [Config].Key, the rows with the same value in that field form a chain. Workers handle the
// rows of a chain one at a time, in the order of Due. Without Due, the order is that of _id. A row
// holds its key from its first claim until it is done or dead, even while it waits for a retry. A
// unique index enforces this.
//
// A row without the key field is in no chain. The rows with the value null in that field form a
// chain. A row with a list in that field is never claimed. A handler must not change the key of its
// row. Queues of one collection with the same Key and Field share their chains.
package claim
