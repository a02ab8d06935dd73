// Package claim gives the rows of a collection to workers, each row to exactly one at a time: the
// SKIP LOCKED of MongoDB. Any collection will do. A row is one of its documents; what this package
// keeps of it is one field, see [Config.Field], and it writes no other.
//
// A handler must not replace its own document, as ReplaceOne with row.Doc does: the field goes with
// it, and the row is as if it had never been claimed, for any worker. Change it with operators such
// as $set. A handler whose row lost its mark is cancelled at the next Tend, and its process leaves
// the row alone for a while; other processes cannot know.
//
// # What it does not promise
//
// Work is done at least once, not exactly once: a process that dies after the work and before the
// row is marked done leaves the row to another. What must happen once belongs into [Row.DoneWith],
// or must refuse a smaller [Row.Fence] than it has seen.
//
// The order of [Config.Sort] is not strict: rows are worked on at the same time, and processes that
// meet at the same rows make way for each other.
//
// A row whose handler never returns stays claimed while its process lives, unless [Config.Lease]
// bounds it.
//
// # What it promises
//
// A claim belongs to a process, not to a span of time. Each process holds one lock of package
// distlock, its slot, for as long as it claims; every row it claims names the slot, its lock
// session and its fence. A row is given to another exactly when a later holder has the slot:
// because the process gave it back, or because it is dead by the takeover rule. It does not matter
// how old the claim is. One watch of one lock serves all rows of a process.
//
// Every command that ends a claim names its session and batch. The completion of a worker whose row
// was given to another matches nothing and returns a [LostError]. So every row is marked done
// exactly once.
//
// A handler's context ends when the slot is lost, before anyone else may have its rows, under the
// assumptions of package distlock.
//
// All processes of a queue keep their locks in one database, [distlock.Config].Database. What is
// claimed under a slot in another one is left alone and logged: nothing is known here of its
// holder. Rows of a dead process whose slot is named after another queue or collection, as before a
// renaming, are rescued: the slot's own lock is the proof.
//
// # The field
//
//	state      absent or "ready", "claimed", "retrying", "dead", "done"
//	locks, slot, slotFence, session   the lock that the claim belongs to, locks being its database
//	batch      new for every claim
//	fence      int64, one more with every claim of this row
//	attempts   int64, how often it was begun; a claim counts until it is given back
//	waiting    true while a rescue gives its attempt back, see Attempts
//	holds      with Config.Key: its name, while the row holds its key
//	rescued    true once its process died, or its lease ended: it is claimed alone from then on
//	cancelled  true when [Queue.Cancel] came while it was claimed: it is dead when that claim ends
//	at         when it was claimed, by the clock of the process that did, for people
//	leaseMS, beat   with Config.Lease: the time without a renewal, and the renewals of this claim
//	notBefore  of a row that is retrying, by the clock of the collection's server
//	error      of the last failure
//	errors     the last ten failures: attempt, at, process, error; about 10 KB at most
//	unique     the key of [Queue.Insert]
//	doneAt, deadAt   when it was, by the clock of the collection's server
//
// An operator may set state to "ready", or remove the field, at any time: a worker that has the row
// learns it from its completion.
//
// A document in which it is something else than a document, null included, is no row: a program
// whose type has a field of that name writes such. A row that the server refuses to change is set
// aside, and the rest goes on, see [Counts].
//
// # What a handler returns
//
//	nil                   the row is done
//	an error              an attempt: again after a pause that grows, dead after MaxAttempts
//	[RetryAfter](d, err)   an attempt: again after d
//	[Snooze](d)            no attempt: again after d
//	[Discard](err)         dead at once
//
// They work when they are wrapped, too. A panic is an error. A context that ends after
// [Config.Timeout] is an attempt. Of a handler whose context has ended for another reason, because
// Run is to end or the slot is lost, every error but Snooze gives the row back.
//
// # The end of a process
//
// [Queue.Stop] is what a program does that is told to end, by SIGTERM: no new rows, and time for
// the handlers that have begun. The end of Run's context is the hard stop: handlers are told to end
// at once, and what they leave is given back. After either, Close the queue.
//
// # Attempts
//
// What counts is that a handler began. A row whose process died or lost its slot is rescued
// uncounted the first time, begun or not; from then on it is claimed alone, and marked before its
// handler begins: one command more, after which a rescue counts, even if the handler did not get so
// far. So no row is dead that was not to begin MaxAttempts times, and one that kills its processes
// is begun once more. Of rows that were rescued after their first attempt Run works on one at a
// time, and puts others off: the one that kills takes no other with it. Rows of [Queue.Claim] are
// begun when they are given, alone if they were rescued.
//
// # Clocks
//
// A lease is judged by the rates of two clocks, as everything in package distlock: the worker's
// must not be slower than three quarters of the rescuer's.
//
// [Config.Due] and the pause before a retry are counted by the clock of the collection's server,
// its primary's; behind a mongos by that of the mongos. Each process asks for it at most once a
// minute and counts on from the reply by its own monotonic clock: a row is late by the time that
// the reply took, and early only when the server's clock was set back, or the new primary's is
// behind, within that minute. The processes' own clocks do not matter.
//
// # Rows that are due later
//
// With [Config.Due] the earliest come first, whether they are new, retried or rescued. What is no
// date is never due, as NULL in SQL: null, a missing field, a text. Such rows count as
// [Counts].Later. Of a list the earliest date counts, and no process wakes for it.
//
// An idle process is awake when a row is due that it knows of: from one read of the next thousand,
// and where there are change streams from those that come and from a $set of their time.
//
// # Chains
//
// With [Config.Key] the rows that have one value in that field are a chain: one of them is worked
// on at a time, in the order of Due and Sort, or else of _id. A row that is claimed for the first
// time takes the key, and has it until it is done or dead; while it waits for a retry, was given
// back or is rescued the others wait. One that is inserted meanwhile and comes before it in order
// waits, too. The server sees to it, by a unique index, whatever processes do late or twice. A row
// that is dead lets its key go, so that one poison row does not end its chain. Rows of other chains
// go on, and so do rows without the field, which are in none.
//
// All processes of a queue give the same Key. Rows that a process without it claims hold no key:
// end those processes first. Queues of one collection with the same Key and Field share its chains,
// but a row of one that is ready again, rescued or given back, may lose its key to one of another.
//
// A handler must not change the key of its row: the row is in the other chain from then on, and the
// server refuses the change with a duplicate key error where that is held.
package claim
