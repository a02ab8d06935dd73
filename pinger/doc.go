// Package pinger keeps one process alive in the collection lockpings: one heartbeat for all of its
// locks, as in every generation of mongos. It also does the chores of the heartbeat: late releases,
// the release of ghosts, the pruning of old pings, the indexes.
//
// The package is independent of lock names, acquisition and takeover. Through [Owner] it learns
// which sessions the process owns.
//
// # Terms
//
// A [Term] is a stretch of time in which the process may trust its locks. It begins with an
// acknowledged ping, and every further one renews it. It ends, once and for good,
//
//   - when no ping was acknowledged for the hold time (takeover - margin), counted from the SEND
//     of the last acknowledged one by the larger of the monotonic and the wall clock;
//   - when the reply to a ping shows that a contender condemned the process;
//   - when the reply shows that the ping document differs from the last ping of this process: two
//     processes share one id, as after the restore of a snapshot, or an operator edited or removed
//     the document;
//   - when the pinger is closed.
//
// A ping that is acknowledged too late begins a new term; it never revives the old one. Guards
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
// Every ping carries a number that its process has chosen: 1, 2, 3 and so on for each process id, a
// new one for each ping that is sent, also after a ping that failed. The store takes a number only
// if it is larger than the one in the document. So a ping that was lost and is applied later
// matches no document, however long it was delayed: the data of a closed socket may be sent again
// when a link heals. And the store takes a number only over a ping of the same process: the time
// local in the document must be that of the last acknowledged ping, or of one sent since (the
// latest 63 of these). Of two processes with one id, the one that pings second finds the ping of
// the other, whether its own number is smaller or, after failed pings, larger. It takes a new id
// and leaves the document to the other, which keeps its locks. Local times are distinguished by the
// millisecond.
//
// The next ping makes a removed document again. Its process detects that, and takes a new id. Where
// a late ping or the copy of a ping was applied first and made the document, the removal is not
// noticed. That is harmless:
//
//   - The document had no mark. Then no lock was taken from the process, since a holder is
//     condemned before it is overtaken; a contender that finds no document inserts a condemned one,
//     which no ping matches, neither a late one nor the next.
//   - The document was condemned, and an operator removed it, or it was pruned after four days.
//     Then the process had been silent for the takeover time, so the term of every guard it had is
//     over by its own clock and is not revived. The next ping begins another term under the old id;
//     its acquisitions have new sessions, and an eviction names the old ones.
//   - The process has closed, or has taken a new id. Then the document protects no guard. A
//     contender that watches restarts its watch once; then the document is pruned.
//
// # Limits
//
// While a term lasts no contender MAY take the locks of the process by the takeover rule, as long
// as clock rates differ by less than takeover : hold. A term does not protect against an operator
// who breaks a lock by hand; the reaper detects that with the next ping.
//
// # Cost
//
// One write for each interval, for any number of locks, one small read that finds ghosts and
// vanished locks, and one hello that detects an election. Two goroutines for the process:
// one only pings, so that no chore can make a ping late.
package pinger
