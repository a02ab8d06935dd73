// Package distlock is a distributed lock on MongoDB: the one that mongos kept in config.locks and
// config.lockpings, with what its generations lacked. A [Manager] is one process and its heartbeat,
// a [DistributedLock] a name, a [TryGuard] a held lock.
//
// Give it a database of its own (Config.Database: "distlock") unless you run a cluster: servers
// refuse change streams on config always, and transactions mostly. Release by defer. Pass the
// guard's context to the work. Look at errors with [errors.Is]: [ErrHeld] is no failure.
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
// # What it does not promise
//
// A lock cannot stop a process. One that was paused in the middle of a statement goes on with that
// statement when it wakes, although its guard is lost by then. What the lock protects must check
// the fence, or be written with a filter that does.
//
// A heartbeat says that a process lives, and nothing of its work: a job that hangs keeps its lock,
// unless that has a [Lease], which the work itself renews.
//
// An operator who edits the document of a held lock, or breaks it with [Inspector.Break], can let
// two holders in until the old one's next ping. So can MongoDB's own lock manager, on a config
// server of 3.2 to 5.0 whose clock steps by more than 15 minutes: it decides by one clock.
//
// By default a takeover may rely on clock values, too, when all of them agree (see package
// takeover): a common step of server and contender, together with a holder that is cut off for two
// or three ping intervals, is two faults, and not covered. takeover.WatchOnly relies on no value.
//
// The lock is as durable as the store: w: majority on a replica set whose majority keeps its disks.
// A standalone and the embedded server have one disk.
//
// # Words, each with one meaning
//
//   - Process: one Manager, known by its process id, <host>:<pid>:<unix seconds>:<uuid>. It takes a
//     new id at every start, and when it was condemned or found a twin: one with the same id, as
//     after a snapshot's restore.
//   - Holder: a process or caller that has the lock. Contender: one that wants it.
//   - Line: the waiters of a lock, in its document. Waiter: a contender in a line.
//   - Grant: giving a lock to the next in line, by the very command that frees it.
//   - Guard: a held lock as its caller has it. Trusted: its Err is nil. Lost: trusted no more,
//     although it was not released.
//   - Lock session: one acquisition, the field ts. Conditional writes name it.
//   - Fence: a number that rises with every acquisition of a name.
//   - Ping: the command by which a process says, every Config.Ping, that it lives, and the document
//     that it leaves in lockpings. Heartbeat: all of them.
//   - Term: the time for which pings are acknowledged without a gap. Deadline: its end by the
//     process's own clock, Takeover - Margin after the last acknowledged ping was sent: its guards
//     are lost then.
//   - Silent: a process whose ping stays as it was. Takeover time: how long, before its locks may
//     be taken. Margin: how long before that guards are lost.
//   - Dead: silent by the rule of package takeover. Takeover: acquiring the lock of a dead holder.
//     Evidence: the figures that decided.
//   - Condemned: declared dead by a contender, in the ping document: pings fail.
//   - Foreign: a program that is not this package and works on the same documents: a mongos, or
//     MongoDB's own lock manager.
//   - Ghost: a lock that a process has in the store and none of its callers has, as after a lost
//     reply. The process frees it within a ping interval.
//   - Background: what a Manager does beside its calls, such as freeing ghosts.
package distlock

// How a lock lives:
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
// One Lock through the files:
//
// lock.go makes a call (acquire.go), and wait.go is what it does, in this order. It has its turn in
// a line of its process. It begins a session, noted in owned.go before anything is sent. It enters
// by one transition of the lock document (catalog/transition), which brings the lock, a place in
// its line, or neither. With a place it sends nothing: internal/waitqueue hears of grants for all
// callers of the process, and has internal/contend take the dead out of the way, as package
// takeover judges. Without one it looks, by internal/contend, until there is one. Whichever process
// granted the lock, newGuard (acquire.go) makes the guard (guard.go). release.go applies one
// transition more, which grants the lock to the next. Package pinger keeps it all alive, and guards
// whose term is over are lost; events.go tells the observer.
