// Package distlock is a distributed lock on MongoDB. It uses the same documents as the lock of
// mongos, in config.locks and config.lockpings, but does not have the known defects of that lock. A
// [Manager] is one process with its heartbeat. A [DistributedLock] is a named lock. A [TryGuard] is
// a held lock.
//
// Use a separate database (Config.Database: "distlock") unless the locks must exclude a cluster's
// own operations. In the database named config, servers refuse change streams, and most servers
// refuse transactions. Defer the release. Pass the guard's context to the work. Test errors with
// [errors.Is]. [ErrHeld] is not a failure.
//
// # Guarantees
//
// At most one guard of a name is trusted at any instant. This guarantee holds for any number of
// processes, under crashes, pauses, partitions, lost replies and elections. It also holds if the
// VALUE of one clock is wrong by any amount. The guarantee assumes that the clock RATES of two
// processes, measured over a takeover time, differ by less than the factor
//
//	Takeover : (Takeover - Margin)        default 15 min : 11 min 15 s = 1.33
//
// A holder that loses its lock detects the loss before another process can acquire the lock. From
// the deadline on, Err reports the loss, even if no timer has run. The loss also ends the guard's
// context. The fence of a name rises with every acquisition.
//
// # Limits
//
// A lock cannot stop a process. If a process is paused in the middle of a statement, it completes
// the statement after the pause, although its guard is lost by then. So the protected resource must
// check the fence, for example by [TryGuard.Fenced].
//
// A heartbeat shows that a process lives, not that its work proceeds. A job that hangs loses its
// lock only if the lock has a [Lease], which the work itself renews.
//
// If an operator edits the document of a held lock, or breaks the lock with [Inspector.Break], a
// second holder is possible until the first holder's next ping. MongoDB's own lock manager, on a
// config server of 3.2 to 6.0, decides by one clock. If that clock steps by more than 15 minutes, a
// second holder is possible too.
//
// By default the takeover rule also uses clock values, if all clocks agree (see package takeover).
// With this rule, two holders are possible if the clocks of the server and the contender jump
// together while the holder is cut off for two or three ping intervals. The rule takeover.WatchOnly
// uses no clock value.
//
// The lock is as durable as the store. On a replica set, writes use the write concern majority, and
// last as long as a majority of the members keeps its data. A standalone server and the embedded
// server keep one copy of the data.
//
// # Terms
//
//   - Process: one Manager. Its process id is <host>:<pid>:<unix seconds>:<uuid>. A
//     process takes a new id at every start, after it was condemned, and after a twin or
//     an operator changed its ping document. A twin is another process with the same id,
//     for example after the restore of a snapshot.
//   - Holder: a process or caller that has the lock. Contender: a process or caller that wants it.
//   - Queue: the waiters of a lock, in its document. A process has at most two entries in a queue,
//     and more only with [Shared] and [Permits]. Waiter: a contender with an entry.
//   - Grant: the transfer of a lock to the next waiter, by the command that frees the lock.
//   - Guard: a held lock, as the caller sees it. Trusted: its Err is nil. Lost: no longer trusted,
//     although it was not released.
//   - Lock session: one acquisition, identified by the field ts. Conditional writes name the
//     session.
//   - Fence: a number that rises with every acquisition of a name.
//   - Ping: the command that renews the document of a process in lockpings. The time
//     between two pings is Config.Ping. The pings of a process are its heartbeat.
//   - Term: a period in which pings are acknowledged without a gap. Deadline: the end of
//     the term by the process's own clock, which is Takeover - Margin after the send of
//     the last acknowledged ping. Guards are lost at the deadline.
//   - Silent: a process whose ping document does not change. Takeover time: the time for which a
//     process must be silent before its locks can be taken. Margin: the time between the loss of
//     a silent process's guards and the end of its takeover time.
//   - Dead: silent for so long that package takeover permits a takeover. Takeover: the eviction of
//     a dead holder, and the acquisition that follows. Evidence: the figures behind the decision.
//   - Condemned: marked as dead in its ping document. From then on its pings fail.
//   - Foreign: another program that uses the same documents, such as a mongos or MongoDB's lock
//     manager.
//   - Ghost: a session that is in the store but belongs to no caller, for example after a lost
//     reply. The process releases it within a ping interval.
//   - Background: a Manager's work outside of calls, such as releasing ghosts.
package distlock

// The life of a lock:
//
//	              TryLock: one command
//	free  ------------------------------------>  held
//	 ^  ^                                        |  |
//	 |  +------- Release: one command -----------+  |  a contender finds the holder silent
//	 |                                              |  for the takeover time
//	 |                                              v
//	 |                          condemned: the holder's ping can no longer succeed
//	 |                                              |
//	 +---------- Evict the watched session, then a normal acquisition
//
// The life of one Lock through the files:
//
// lock.go checks the arguments and queues a call at the agent of its lock. agent.go keeps up to two
// entries for these calls. entry.go begins a session, owned.go records it, and a transition of the
// lock document (catalog/transition) enters it. The server grants the lock, queues the session, or
// refuses it. After a refusal, acquire.go reads the lock and evicts dead processes. A queued session
// sends no command: package internal/queue receives its grant, and evicts dead processes ahead of
// it. A session that holds the lock serves the first matching call, which makes a guard
// (acquire.go, guard.go). release.go applies one more transition, which grants the lock to the next
// waiter, and may queue a further session of this process (entry.go). Package pinger keeps all
// guards trusted, and events.go notifies the observer.
