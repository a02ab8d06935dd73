// Package distlock is a distributed lock on MongoDB: the one that mongos kept in config.locks and
// config.lockpings, with what its generations lacked. A [Manager] is one process and its heartbeat;
// a [DistributedLock] is a name; a [TryGuard] is a held lock; an [Inspector] only looks.
//
// # What it does not promise
//
// A lock cannot stop a process. One that was paused in the middle of a statement goes on with that
// statement when it wakes, although its guard is lost by then. What the lock protects must check
// the fence, or be written inside MongoDB with a filter that does.
//
// An operator who edits the document of a held lock, or breaks it with [Inspector.Break], can let
// two holders in until the old one's next ping. So can MongoDB's own lock manager, on a config
// server of 3.2 to 5.0 whose clock steps by more than 15 minutes: it decides by one clock.
//
// The lock is as durable as the store: w: majority on a replica set whose majority keeps its disks.
// A standalone and the embedded server have one disk.
//
// # What it promises
//
// At most one guard of a name is trusted at any instant, in any number of processes, under crashes,
// pauses, partitions, lost replies, elections, and one clock of any wrong VALUE, as long as the
// RATES of two processes' clocks differ over a takeover time by less than
//
//	Takeover : (Takeover - Margin)        default 15 min : 11 min 15 s = 1.33
//
// A holder that loses its lock knows before anyone else may have it: Err says so from the deadline
// on, whether or not any timer has run, and the guard's context ends. The fence of a name rises
// with every acquisition.
//
// By default a takeover may rely on clock values, too, when all of them agree (see package
// takeover). A common step of server and contender, together with a holder that is cut off for
// three ping intervals, is two faults, and not covered. [Tuning].TakeoverRule takeover.WatchOnly
// relies on no value.
//
// # Words
//
// Each word has one meaning, here, in the errors and in the events.
//
//   - Process: one Manager, known by its process id, <host>:<pid>:<unix seconds>:<uuid>. It takes a new
//     id at every start, and when it was condemned or found a twin: another process with the same id,
//     as after the restore of a snapshot of a machine.
//   - Contender: a process, or a caller inside it, that wants a lock. Holder: one that has it. Caller:
//     the code that called this package.
//   - Line: the waiters of a lock, first come, first served; it stands in the lock's document. Waiter:
//     a contender that has a place in it.
//   - Grant: giving a lock to the next in line, by the very command that frees it.
//   - Guard: a held lock as its caller has it, a TryGuard. Trusted: a guard whose Err is nil. Lost: a
//     guard that is trusted no more although it was not released.
//   - Lock session: one acquisition, the field ts; every conditional write names it.
//   - Fence: a number that rises with every acquisition of a name.
//   - Mode: exclusive, shared (for readers), or permit (one of so many, a semaphore). Limit: that
//     number.
//   - Heartbeat: what keeps all locks of a process, by a ping every Config.Ping. Ping: one such command,
//     and the document that it leaves in lockpings.
//   - Term: the time for which pings are acknowledged without a gap. Deadline: its end by the process's
//     own clock, Takeover - Margin after the last acknowledged ping was sent. All guards of the term are
//     lost then, whatever arrives later.
//   - Lease: a life of its own that a guard may have, see [Lease]. Renewal: one command that begins it
//     anew, and the number that it leaves in the lock document.
//   - Silent: a process whose ping a contender sees unchanged. Takeover time: how long, before its locks
//     may be taken. Margin: how long before that its guards are lost.
//   - Takeover: acquiring a lock whose holder was silent for the takeover time. Takeover rule: what
//     decides that, see package takeover. Dead: silent by that rule. Evidence: the figures it decided
//     on, in words. Observation: the looks of one contender at a lock, which count the silence.
//   - Condemned: declared dead by a contender, in its ping document: the process's pings fail.
//   - Foreign manager: a program that is not this package and works on the same documents: a mongos, or
//     MongoDB's own lock manager. Foreign holder: one of its locks' holders.
//   - Ghost: a lock that the store says a process holds and none of its callers has, left by a command
//     whose reply was lost. The process frees it within a ping interval.
//   - Background: what a Manager does after a call has returned: releases that failed, ghosts, old pings.
//   - History: what happened to the locks, see package history.
//   - Store: the server and the two collections. Malformed: a document in them that cannot be understood.
//   - Operator: a person who lists locks, breaks them, or edits documents. Break: to take a holder out of
//     its lock by force.
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
// A heartbeat says that a process lives, and nothing of its work: a job that hangs keeps its lock,
// unless that has a [Lease], which the work itself renews.
//
// # Use
//
// Give it a database of its own (Config.Database: "distlock") unless you run a cluster: servers
// refuse change streams on config always, and transactions mostly. Release by defer. Pass the
// guard's context to the work. Look at errors with [errors.Is]: [ErrHeld] is no failure.
//
// # Reading the source
//
// acquire.go is one acquisition, from the first command to the guard; wait.go is one call of Lock
// that has to wait; guard.go is the held lock, lease.go the life it may have of its own; owned.go
// is what the process owns. What they stand on are packages without guards: internal/contend looks
// at a lock and takes the dead out, internal/waitqueue waits for all callers of the process,
// takeover is the rule, pinger the heartbeat, catalog the store, and catalog/transition the
// transitions of a lock document.
package distlock
