// Package distlock is a distributed lock on MongoDB: the one that mongos kept in config.locks and
// config.lockpings, with what its generations lacked. A [Manager] is one process and its
// heartbeat; a [DistributedLock] is a name; a [TryGuard] is a held lock.
//
// # What it does not promise
//
// A lock cannot stop a process. One that was paused in the middle of a statement goes on with that
// statement when it wakes, even though its guard is lost by then. What the lock protects must
// check the fence, or be written inside MongoDB with a filter that does.
//
// A hand that edits a held lock document, or breaks it with [Inspector.Break], can let two holders
// in until the old one's next ping. So can MongoDB's own lock manager, on a config server of 3.2
// to 5.0 whose clock steps by more than 15 minutes: it decides by one clock.
//
// The lock is as durable as the store: w: majority on a replica set whose majority keeps its
// disks. A standalone and the embedded server have one disk.
//
// # What it promises
//
// At most one guard of a name is trusted at any instant, in any number of processes, under
// crashes, pauses, partitions, lost replies, elections, and one clock of any wrong VALUE, as long
// as the RATES of two processes' clocks differ over a takeover time by less than
//
//	Takeover : (Takeover - Margin)        default 15 min : 11 min 15 s = 1.33
//
// A holder that loses its lock knows before anyone else may have it: Err says so from the instant
// of the deadline on, whether or not any timer has run, and the guard's context ends. The fence of
// a name rises with every acquisition.
//
// By default a takeover may rely on clock values too, when all of them agree (see package
// takeover). Then "one clock of any wrong value" means any single one; a common step of server and
// contender together with a holder that is cut off for three ping intervals is two faults.
// TakeoverRule takeover.WatchOnly relies on no value.
//
// # Words
//
// Trusted: a guard whose Err is nil. Deadline: the local instant after which it is not, whatever
// arrives later. Lock session: one attempt to acquire, the field ts; every conditional write names
// it. Fence: a number that rises with every acquisition of a name. Takeover: acquiring a lock
// whose holder was seen silent for the takeover time. Process id: <host>:<pid>:<unix seconds>:
// <uuid>, new for every start, and taken anew when a process was condemned or found a twin.
//
// # How a lock lives
//
//	              TryLock: one command
//	free  ------------------------------------>  held
//	 ^  ^                                        |  |
//	 |  +------- Release: one command -----------+  |  holder silent for Takeover,
//	 |                                              |  seen by a contender
//	 |                                              v
//	 |                          condemned: the holder's ping can no longer succeed
//	 |                                              |
//	 +-- the new holder's Release --  held  <-------+  overtake, by the session that was watched
//
//	the holder's side:  trusted --(no acknowledged ping for Takeover - Margin)--> lost, for good
//
// # Use
//
// Give it a database of its own (Config.Database: "distlock") unless you run a cluster: servers
// refuse change streams on config always, and transactions mostly. Release by defer. Pass the
// guard's context to the work. Look at errors with [errors.Is]: [ErrHeld] is no failure.
//
// # Reading the source
//
// acquire.go is one acquisition, from the first command to the guard; wait.go is one call of Lock that has
// to wait; guard.go is the held lock; owned.go is what the process owns. What they stand on are packages
// without guards: internal/contend looks at a lock and takes the dead out, internal/waitqueue waits for all
// callers of the process, takeover is the rule, pinger the heartbeat, catalog the store, and catalog/queue
// the transitions of a lock document.
package distlock
