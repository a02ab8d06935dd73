// Package singleton runs a function in one of many processes. A [Loop] runs its function at an
// interval. [Slots] run their function once for each time of a schedule. Any number of processes
// can call [Run] or [RunSlots] with the same name. One of them holds the lock of that name, also
// between two calls of the function. The other processes queue for the lock. [List] returns the
// state of all loops and schedules.
//
// A round is one call of the function. A slot is one time of a schedule, or the round that runs for
// that time. The holder is the process that holds the lock. The design follows the balancer of
// mongos.
//
// # Limits
//
// When the lock is lost, the context of the round ends, but the function continues until it checks
// its context. A process that was paused may continue its round while a new holder runs the next
// round. So the function must fence its writes with the guard, see package distlock.
//
// When the Manager is closed, the context of a running round ends. Close then waits for the round
// until the context of Close ends, see [distlock.Manager.Close]. If the round continues after that,
// the lock stays held until a takeover.
//
// If a process dies while it runs a slot, the work of that slot may be incomplete. By default the
// slot does not run again. With Slots.Rerun it runs again, until an attempt returns or MaxAttempts
// attempts have begun.
//
// # Why a schedule needs slots
//
// Some schedulers acquire a lock for each run. If a job is quick, its process releases the lock
// before the timer of another process fires. Then the job runs once for each process (gocron issue
// 841). In this package one process keeps the lock, and a document stores the time of the latest
// slot. Before a slot runs, the holder advances that time by a compare-and-set under the fence of
// the lock. The server's clock determines when a slot is due. The clocks of the processes do not
// matter.
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
//	             RunNow adds one to asks}
//
// The following command in mongosh stops all later rounds of a name. A running round continues.
//
//	db.distlock_settings.updateOne({_id: "<name>"}, {$set: {stopped: true}}, {upsert: true})
//
// A new holder first writes its fence into the record. The later writes of the holder contain the
// fence and the expected revision of the record. So a late write of a former holder changes
// nothing. If the reply to a write is lost, the holder reads the record before it writes again. So
// no write is lost or applied twice.
package singleton
