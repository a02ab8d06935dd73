// Package distlock is a distributed lock on MongoDB. It uses the documents of mongos' lock, in
// config.locks and config.lockpings, without the known defects of that lock. A [Manager] is one
// process with its heartbeat, a [DistributedLock] a named lock, and a [TryGuard] a held lock.
//
// Use a separate database (Config.Database: "distlock") unless the locks must exclude a cluster's
// own operations: config has no change streams, and mostly no transactions. Defer the release. Pass
// the guard's context to the work. Test errors with [errors.Is]. [ErrHeld] is not a failure.
//
// # Guarantees
//
// At most one guard of a name is trusted at any instant. This holds for any number of processes,
// under crashes, pauses, partitions, lost replies and elections, and if the VALUE of one clock is
// wrong by any amount. It assumes that the RATES of two clocks, measured over a takeover time,
// differ by less than the factor
//
//	Takeover : (Takeover - Margin)        default 15 min : 11 min 15 s = 1.33
//
// A holder detects the loss of its lock before another process can acquire the lock. The fence of a
// name rises with every acquisition.
//
// # Limits
//
// A lock cannot stop a process. A process that is paused in the middle of a statement completes the
// statement after the pause, although its guard is lost by then. So the protected resource must
// check the fence, for example by [TryGuard.Fenced].
//
// A heartbeat shows that a process lives, not that its work proceeds. A job that hangs loses its
// lock only if the lock has a [Lease].
//
// A second holder is possible until the first holder's next ping if an operator edits the document
// of a held lock, or breaks the lock with [Inspector.Break]. It is also possible if the clock of a
// config server of 3.2 to 6.0 steps by more than 15 minutes: MongoDB's own lock manager trusts that
// clock.
//
// By default the takeover rule also uses clock values, if all clocks agree (see package takeover).
// Two holders are then possible if the clocks of the server and the contender jump together while
// the holder is cut off for two or three ping intervals. The rule takeover.WatchOnly uses no clock
// value.
//
// The lock is as durable as the store. A write to a replica set lasts as long as a majority of its
// members keeps the data. A standalone server and the embedded server keep one copy.
//
// # Terms
//
//   - Process: one Manager. It takes a new id, <host>:<pid>:<unix seconds>:<uuid>, at every start,
//     after it was condemned, and after a twin or an operator changed its ping document.
//   - Twin: another process with the same id, for example of a restored snapshot.
//   - Holder: a process or caller that has the lock. Contender: one that wants it.
//   - Queue: the waiters of a lock, in its document. Waiter: a contender with an entry. A process
//     has at most two entries, and more only with [Shared] and [Permits].
//   - Grant: the transfer of a lock to its next waiter, by the command that frees it.
//   - Guard: a held lock, as the caller sees it. Trusted: its Err is nil. Lost: no longer trusted,
//     although it was not released.
//   - Lock session: one acquisition. Its id is the field ts.
//   - Fence: a number that rises with every acquisition of a name.
//   - Ping: the command that renews the document of a process in lockpings, every Config.Ping.
//     Heartbeat: the pings of a process.
//   - Term: a period in which pings are acknowledged without a gap. Deadline: its end by the
//     process's own clock, Takeover - Margin after the send of the last acknowledged ping.
//   - Silent: a process whose ping document does not change.
//   - Takeover time: the silence after which the locks of a process can be taken. Margin: the part
//     of it that remains when the process loses its guards.
//   - Dead: silent for so long that package takeover permits a takeover. Takeover: the eviction of
//     a dead holder, and the acquisition that follows. Evidence: the figures behind the decision.
//   - Condemned: marked as dead in its ping document. From then on its pings fail.
//   - Foreign: another program that uses the same documents, such as mongos.
//   - Ghost: a session in the store that belongs to no caller, for example after a lost reply. Its
//     process releases it within a ping interval.
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
// refuses it. After a refusal, acquire.go reads the lock and evicts dead processes. A queued
// session sends no command: package internal/queue receives its grant, and evicts dead processes
// ahead of it. A session that holds the lock serves the first matching call, which makes a guard
// (acquire.go, guard.go). release.go applies one more transition, which grants the lock to the next
// waiter, and may queue a further session of this process (entry.go). Package pinger keeps all
// guards trusted, and events.go notifies the observer.
