// Package distlock is a distributed lock on MongoDB. It is the lock that mongos kept in
// config.locks and config.lockpings, without the known defects of its generations. A [Manager] is
// one process and its heartbeat, a [DistributedLock] a name, a [TryGuard] a held lock.
//
// Use a separate database (Config.Database: "distlock") unless the program runs a cluster: on
// config, servers refuse change streams, and most of them transactions. Release by defer. Pass the
// guard's context to the work. Test errors with [errors.Is]: [ErrHeld] is no failure.
//
// # Guarantees
//
// At most one guard of a name is trusted at any instant, in any number of processes, under crashes,
// pauses, partitions, lost replies, elections, and one clock of any wrong VALUE, as long as the
// RATES of the clocks of two processes differ over a takeover time by less than
//
//	Takeover : (Takeover - Margin)        default 15 min : 11 min 15 s = 1.33
//
// A holder that loses its lock detects that before another process can acquire it: Err reports it
// from the deadline on, whether or not a timer has run, and the guard's context ends. The fence of
// a name rises with every acquisition.
//
// # Limits
//
// A lock cannot stop a process. A process that is paused in the middle of a statement completes the
// statement after the pause, although its guard is lost by then. The resource that the lock
// protects must check the fence, or be written with a filter that does.
//
// A heartbeat shows that a process lives, and does not show that its work proceeds: a job that
// hangs keeps its lock, unless it has a [Lease], which the work itself renews.
//
// An operator who edits the document of a held lock, or breaks the lock with [Inspector.Break], can
// let two holders in until the first one's next ping. So can MongoDB's own lock manager, on a
// config server of 3.2 to 6.0 whose clock steps by more than 15 minutes: it decides by one clock.
//
// By default a takeover may use clock values, too, when all of them agree (see package takeover).
// If the server's and the contender's clock jump together while the holder is cut off for two or
// three ping intervals, two holders can get in. takeover.WatchOnly uses no clock value.
//
// The lock is as durable as the store: w: majority on a replica set with a majority that keeps its
// disks. A standalone and the embedded server have one disk.
//
// # Terms
//
//   - Process: one Manager. Its process id is <host>:<pid>:<unix seconds>:<uuid>. A process takes a
//     new id at every start, and after it was condemned or found a twin: a process with the same id,
//     as after the restore of a snapshot.
//   - Holder: a process or caller that has the lock. Contender: one that wants it.
//   - Queue: the waiters of a lock, in its document. Each process has one or two entries in it.
//     Waiter: a contender with an entry.
//   - Grant: the transfer of a lock to the next waiter, by the command that frees it.
//   - Guard: a held lock as its caller has it. Trusted: its Err is nil. Lost: no longer trusted,
//     although it was not released.
//   - Lock session: one acquisition, the field ts. Conditional writes name it.
//   - Fence: a number that rises with every acquisition of a name.
//   - Ping: the command that renews the document of a process in lockpings, every Config.Ping. The
//     pings of a process are its heartbeat.
//   - Term: the time for which pings are acknowledged without a gap. Deadline: its end by the
//     process's own clock, Takeover - Margin after the last acknowledged ping was sent. Guards are
//     lost then.
//   - Silent: a process whose ping document does not change. Takeover time: how long a process must
//     be silent before its locks can be taken. Margin: how long before that its guards are lost.
//   - Dead: silent by the rule of package takeover. Takeover: the eviction of a dead holder, and the
//     acquisition that follows. Evidence: the figures of the decision.
//   - Condemned: marked as dead in its ping document: pings fail from then on.
//   - Foreign: another program that uses the same documents: a mongos, or MongoDB's lock manager.
//   - Ghost: a session that the store has and no caller has, as after a lost reply. The process
//     releases it within a ping interval.
//   - Background: the work of a Manager outside of calls, such as the release of ghosts.
package distlock

// The life of a lock:
//
//	              TryLock: one command
//	free  ------------------------------------>  held
//	 ^  ^                                        |  |
//	 |  +------- Release: one command -----------+  |  a contender has seen the holder silent
//	 |                                              |  for the takeover time
//	 |                                              v
//	 |                          condemned: the holder's ping can no longer succeed
//	 |                                              |
//	 +---------- Evict, by the session that was watched, then an acquisition as any other
//
// The life of one Lock through the files:
//
// lock.go checks the arguments and makes a call. call.go adds the call to the queue of callers of
// its agent and waits for an answer. agent.go keeps up to two entries for the callers of a name.
// entry.go begins a session, which owned.go records before anything is sent, and enters it by one
// transition of the lock document (catalog/transition). The answer is the lock, a place in the
// queue, or a refusal, after which acquire.go reads the lock and evicts dead processes. A queued
// session sends nothing: internal/queue receives grants for the whole process, and evicts dead
// processes that are ahead. A session that holds the lock goes to the first call that it fits,
// which makes the guard of it (acquire.go, guard.go). release.go applies one more transition, which
// grants the lock to the next waiter. Package pinger keeps all guards trusted, and events.go
// notifies the observer.
