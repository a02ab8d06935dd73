// Package singleton runs things on one process of many: a [Loop] every interval, and [Slots] once
// for each time of a schedule. Any number of processes call [Run] or [RunSlots] with the same name;
// one of them holds the lock of that name, from round to round, and the others wait in line for it.
// mongos' balancer was such a loop. [List] tells what runs, when it ran, and what is stopped.
//
// # What it does not promise
//
// A round is not stopped by the loss of the lock: its context ends, and what it writes must be
// fenced by its guard, see package distlock. A process that was paused in the middle of a round
// goes on with it when it wakes, beside the new holder's, unless it looks at its context.
//
// Close of the Manager ends the context of a round and waits for the round, as long as the context
// of Close allows, see [distlock.Manager.Close]. A round that runs on keeps the lock until a takeover.
//
// No slot is done exactly once if a process dies in it: nobody can tell what it had done. It is
// begun at most once, or done at least once, as Slots.Rerun says.
//
// # Why the slot and not the lock
//
// A scheduler that takes a lock for each run has a quick job's lock free again before the next
// process's timer fires, and the job runs once for each process (gocron issue 841). Here one
// process keeps the lock, and a document holds the time of the latest slot that was begun. The
// holder moves it on before the slot runs, by a compare-and-set under the lock's fence. The
// server's clock decides when a slot is due; the clocks of the processes do not matter.
//
// # The documents
//
// Both collections are in the database that [NewStore] was given, best that of the locks.
//
//	settings, which operators write
//	            {_id: <name>, stopped: true, activeWindow: {start: "23:00", stop: "6:00"}}
//	singletons, which holders write
//	            {_id: <name>, kind, fence, rev, process, seen, state, begun, ended, next, rounds,
//	             failures, lastError, runFence, runs, answered; of slots also slot, attempt, missed;
//	             asks is raised by RunNow}
//
// To stop the rounds of a name from the next one on, in mongosh:
//
//	db.settings.updateOne({_id: "<name>"}, {$set: {stopped: true}}, {upsert: true})
//
// A holder leaves its fence in the record before it does anything else, and every later write names
// fence and revision. So the write of a holder that was taken over matches nothing, however late it
// comes, and a write whose answer was lost is neither lost nor done twice.
//
// # Reading the source
//
// runner.go holds the lock and makes pass after pass; loop.go and slots.go are one pass each;
// schedule.go says which slots are due; mongo.go and memory.go are the stores, for which package
// singletontest is the suite.
package singleton
