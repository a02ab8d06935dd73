// Package pinger keeps one process alive in the collection lockpings. One heartbeat serves all
// locks of the process, as in every generation of mongos. The package also does the chores of the
// heartbeat: late releases, the release of ghosts, the pruning of old pings, and the indexes.
//
// The package is independent of lock names, acquisition and takeover. [Owner] reports the sessions
// that the process owns.
//
// # Terms
//
// A [Term] is a period in which the process may trust its locks. It begins with an acknowledged
// ping, and every further acknowledged ping renews it. It ends for good when one of these happens:
//
//   - No ping was acknowledged for the hold time (takeover - margin). The time counts from the SEND
//     of the last acknowledged ping, by the larger of the monotonic and the wall clock.
//   - The reply to a ping shows that a contender condemned the process.
//   - The reply shows that the ping document differs from the last ping of this process. Two
//     processes share one id, for example after the restore of a snapshot, or an operator edited or
//     removed the document.
//   - The pinger is closed.
//
// A ping that is acknowledged too late begins a new term. It never revives the old one. Guards
// belong to the term in which they were acquired and are lost with it.
//
//	             ping acknowledged                 ping acknowledged in time
//	(no term) ----------------------> [ term ] <-----------------------------+
//	    ^                               |  |  \______________________________/
//	    |   hold time passed, or closed |  | condemned, a twin, or removed
//	    +-------------------------------+  +--> new process id, then (no term)
//
// # Numbers
//
// Every ping carries a number that its process has chosen: 1, 2, 3 and so on for each process id.
// Each ping that is sent gets a new number, even after a ping that failed. The store takes a number
// only if it is larger than the one in the document. So a lost ping that is applied later matches
// no document, however long it was delayed. A delay can be long: the data of a closed socket may be
// sent again when a link heals.
//
// The store takes a number only over a ping of the same process. The field local of the document
// must be the time of the last acknowledged ping, or of one of the latest 63 pings sent since. If
// two processes share one id, the second one to ping finds the ping of the other. This holds
// whether its own number is smaller or, after failed pings, larger. It takes a new id and leaves
// the document to the other process, which keeps its locks. Local times are distinguished by the
// millisecond.
//
// If the document was removed, the next ping makes it again. Its process detects that, and takes a
// new id. If a late ping or the copy of a ping made the document first, the removal is not
// detected. That is harmless:
//
//   - The document had no mark. Then no lock was taken from the process, because a holder is
//     condemned before its lock is taken over. A contender that finds no document inserts a
//     condemned one, which no late ping and no next ping matches.
//   - The document was condemned, and an operator removed it, or it was pruned after four days.
//     Then the process had been silent for the takeover time. So the terms of all its guards are
//     over by its own clock and are not revived. The next ping begins another term under the old
//     id. Its acquisitions have new sessions, and an eviction names the old ones.
//   - The process has closed, or has taken a new id. Then the document protects no guard. A
//     contender that watches restarts its watch once; then the document is pruned.
//
// # Limits
//
// While a term lasts, no contender MAY take the locks of the process by the takeover rule, as long
// as clock rates differ by less than takeover : hold. A term does not protect against an operator
// who breaks a lock by hand. The reaper detects the break with the next ping.
//
// # Cost
//
// Each interval costs one write for all locks, one small read that finds ghosts and vanished locks,
// and one hello that detects an election. The process has two goroutines. One only pings, so that
// no chore can make a ping late.
package pinger
