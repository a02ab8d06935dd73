// Package claim gives the rows of a collection to workers, each row to one worker at a time, like
// SKIP LOCKED in SQL. A row is a document of any collection. The package stores the state of a row
// in the field [Config].Field, and writes no other field. One command claims a row and begins an
// attempt. A second command records the end. The file docs/claim.md has the cases, clocks and
// costs.
//
// # Limits
//
// Work is done at least once, not exactly once: a process may die after the work and before it
// records the end. If the work must take effect only once, do it in [Row.DoneWith], or let the
// resource refuse a smaller [Row.Fence]. A handler must not change the row's key, or replace its
// document: a second handler could begin.
//
// # Guarantees
//
// A claim has no time limit. Each process holds one lock of package distlock, its slot. A claimed
// row names the slot, the lock session and the fence of its process. Another process must acquire
// the slot before it can take over the row. This is possible only after a release, or after package
// distlock has found the first process dead. When a process loses its slot, the contexts of its
// handlers end. Under the assumptions of package distlock, they end before another process can take
// over. All processes of a queue must share the [distlock.Config].Database.
//
// Every command that ends a claim names the claim. If the claim has already ended, the command
// changes nothing. If the command fails, the process repeats it. A claim with an unknown
// outcome is given back before the next claim.
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
// process gives the row back, and the attempt does not count. If Config.Timeout ends the context,
// an error counts. Only Discard and [Admin.Cancel] make a row dead before MaxAttempts attempts.
//
// # Chains
//
// With [Config].Key, the rows with the same value in that field form a chain. Workers handle them
// one at a time, in the order of Due, or else of _id. A row holds its key from its first claim
// until it is done or dead, even between retries. A unique index enforces this. A row without the
// field is in no chain. The value null is a key. A row with a list is never claimed. Queues of one
// collection with the same Key and Field share their chains.
package claim
