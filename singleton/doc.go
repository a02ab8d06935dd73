// Package singleton runs functions in one process of many: a [Loop] every interval, and [Slots]
// once for each time of a schedule. Any number of processes call [Run] or [RunSlots] with the same
// name. One of them holds the lock of that name, from round to round, and the others queue for it.
// mongos' balancer was such a loop. [List] returns the state of all loops and schedules.
//
// # Limits
//
// The loss of the lock does not stop a round. It ends the context of the round. The round must
// fence its writes with the guard, see package distlock. A process that was paused in a round
// continues it afterwards, even while the new holder runs the next round. To stop, the round must
// check its context.
//
// Close of the Manager ends the context of a round and waits for it within the context of Close,
// see [distlock.Manager.Close]. A round that continues keeps the lock until a takeover.
//
// If a process dies while it runs a slot, the work of that slot may be incomplete. By default the
// slot is not repeated. With Slots.Rerun the slot has up to MaxAttempts attempts, until one
// returns.
//
// # Why the slot and not the lock
//
// A scheduler may take a lock for each run. A quick job then releases the lock before the next
// process's timer fires, and the job runs once for each process (gocron issue 841). Here one
// process keeps the lock, and a document has the time of the latest slot. The holder advances that
// time before the slot runs, by a compare-and-set under the lock's fence. The server's clock
// determines when a slot is due; the clocks of the processes do not matter.
//
// # The documents
//
// Both collections are in the database of [NewStore], usually the database of the locks.
//
//	distlock_settings, which operators write
//	            {_id: <name>, stopped: true, activeWindow: {start: "23:00", stop: "6:00"}}
//	singletons, which holders write
//	            {_id: <name>, kind, fence, rev, process, seen, state, begun, ended, next, rounds,
//	             failures, lastError, runFence, runs, answered; of slots also slot, attempt, missed;
//	             asks is raised by RunNow}
//
// To stop the rounds of a name from the next one on, in mongosh:
//
//	db.distlock_settings.updateOne({_id: "<name>"}, {$set: {stopped: true}}, {upsert: true})
//
// A holder first writes its fence into the record, and every later write names fence and revision.
// So the late write of a former holder does not match, and a write without a reply is neither lost
// nor done twice.
//
// # Reading the source
//
// runner.go holds the lock and makes one pass after the other. loop.go and slots.go have the
// passes. schedule.go computes the due slots. mongo.go and memory.go are the stores, and package
// singletontest has their tests.
package singleton
