// Package claim gives the rows of a collection to workers, each row to exactly one at a time: the
// SKIP LOCKED of MongoDB. Any collection will do. A row is one of its documents; what this package
// keeps of it is one field, see [Config.Field], and it writes no other.
//
// A handler must not replace its own document, as ReplaceOne with row.Doc does: the field goes with it,
// and the row is as if it had never been claimed, for any worker. Change it with operators such as
// $set. A handler whose row lost its mark is cancelled at the next Tend, and its process leaves the row
// alone for a while; other processes cannot know.
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
//	waiting    true while the row waits for a worker: a rescue gives its attempt back
//	rescued    true once its process died, or its lease ended: it is claimed alone from then on
//	at         when it was claimed, by the clock of the process that did, for people
//	leaseMS, beat   with Config.Lease: how long a row may go without a renewal, and the renewals of this claim
//	notBefore  of a row that is retrying, by the clock of the process where it failed or was given back
//	error      of the last failure
//
// An operator may set state to "ready", or remove the field, at any time: a worker that has the row
// learns it from its completion.
//
// A document in which it is something else than a document, null included, is no row. A row that the
// server refuses to change is set aside, and the rest goes on, see [Counts].
//
// # Attempts
//
// What counts is that a handler began. Rows that wait for a worker when their process dies are rescued
// uncounted, so a row that kills its process does not take its neighbours with it; from then on each of
// them is claimed alone. The crash by which a row is found out may be one more than MaxAttempts. Rows
// of [Queue.Claim] are begun when they are given.
//
// # Clocks
//
// A lease is judged by the rates of two clocks, as everything in package distlock: the worker's
// must not be slower than three quarters of the rescuer's. The pause before a retry is the only
// thing that compares two processes' clocks: with clocks an hour apart a row is retried up to an
// hour early or late. Nothing else depends on them.
package claim
