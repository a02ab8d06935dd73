// Package claim gives the rows of a collection to workers, each row to one of them at a time: the
// SKIP LOCKED of MongoDB. A row is a document of any collection. The package keeps one field in it,
// see [Config].Field, and writes no other.
//
// A worker that is free claims one row with one command. The claim is the beginning of an attempt;
// a second command records its end.
//
// # What it does not promise
//
// Work is done at least once, not exactly once: a process may die after the work and before its
// record. What must happen once belongs into [Row.DoneWith], or must refuse a smaller [Row.Fence]
// than it has seen.
//
// A handler must not replace its own document, as ReplaceOne with row.Doc does: the field goes with
// it, and any worker may claim the row. Change documents by operators such as $set.
//
// A handler that ignores the end of its context keeps its row and its worker until it returns, see
// [Config].OnStuck.
//
// # What it promises
//
// A claim belongs to a process, not to a span of time. Each process holds one lock of package
// distlock, its slot; every row that it claims names the slot, the lock session and the fence. Another
// process may have the row when a later holder has the slot: the process gave it back, or is dead by
// the takeover rule. So a row may be worked on for days, and one watch of one lock serves all rows of
// a process.
//
// Every command that ends a claim names its session and its batch. The end of a claim that is over
// matches no row. A failed end is repeated until its outcome is known. A claim whose outcome is
// unknown is given back before the process claims again.
//
// A handler's context ends when the slot is lost, before another process may have its rows, under the
// assumptions of package distlock. All processes of a queue keep their locks in one database,
// [distlock.Config].Database; rows under a slot in another one are left alone and logged.
//
// # The field
//
//	state      absent or "ready", "claimed", "retrying", "dead", "done"
//	locks, slot, slotFence, session   the lock of the process that claimed the row, and its database
//	batch      new for every claim
//	fence      int64, one more with every claim of this row
//	attempts   int64, the claims that count
//	holds      the name of Config.Key while the row holds its key
//	cancelled  true if [Admin.Cancel] came while it was claimed: it is dead when that claim ends
//	at         when it was claimed, by the clock of the process, for people
//	notBefore  of a retrying row, by the clock of the collection's server
//	error      of the last failure
//	errors     the last ten failures: attempt, at, process, error; about 10 KB at most
//	unique     the key of [Queue.Insert]
//	doneAt, deadAt   by the clock of the collection's server
//
// An operator may set state to "ready", or remove the field, at any time: the worker of the row
// learns it within 5 s, or from the end of its claim.
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
// The functions work when their errors are wrapped. An error after Config.Timeout is a failure. A
// handler whose context ended for another reason, the end of Run or the loss of the slot, gives the
// row back with its error: the attempt does not count. No row is dead with fewer than MaxAttempts
// attempts, except by Discard and Cancel; attempts that another program wrote do not count.
//
// # Clocks
//
// Pauses and [Config].Due go by the clock of the collection's server, its primary's, or that of the
// mongos. A process reads it at most once a minute and counts on by its own monotonic clock: a row is
// late by the time of the reply, and early only if the server's clock was set back within that minute.
//
// # Chains
//
// With [Config].Key the rows that have one value in that field are a chain: one of them is worked on
// at a time, in the order of Due, or else of _id. A row takes the key with its first claim and holds
// it until it is done or dead; while it waits for a retry, or was given back, the chain waits. A
// unique index enforces it, whatever processes do late or twice. Rows of other chains, and rows
// without the field, which are in none, are independent. null is a value. A row with a list there is
// never claimed. At most 10,000 keys may be held at a time; rows behind further ones delay the queue.
//
// All processes of a queue have the same Key. Queues of one collection with the same Key and Field
// share its chains, but a ready row of one may lose its key to a row of another. A handler must not
// change the key of its row.
package claim
