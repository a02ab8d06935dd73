// Package pinger keeps one process alive in the collection lockpings: one heartbeat for all of its
// locks, as every generation of mongos had it. It also does the chores that belong to the
// heartbeat: late releases, the release of ghosts, the pruning of old pings, the indexes.
//
// The package knows nothing of lock names, of acquiring and of taking over. What it knows of locks
// comes through [Owner]: which sessions the process owns.
//
// # Terms
//
// A [Term] is a stretch of time in which the process may trust its locks. It begins with an
// acknowledged ping and is renewed by every further one. It ends, once and for good,
//
//   - when no ping was acknowledged for the hold time (takeover - margin), counted from the SEND
//     of the last acknowledged one by the larger of the monotonic and the wall clock;
//   - when the answer of a ping says that the process was condemned by a contender;
//   - when the answer says that the ping document is not as this process left it: two processes
//     share one id, as after the restore of a snapshot, or an operator edited or removed it;
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
// new one for each ping that is sent, whatever becomes of it. The store takes a number only if it
// is larger than the one there. So a ping that was lost and is carried out later matches nothing,
// and nothing is assumed of how long a request may be under way: what a closed socket still holds
// is sent again when a link heals. And it takes one only over a ping of the same process: the time
// local in the document must be that of the last acknowledged one, or of one sent since (the latest
// 63 of these). Of two processes with one id, whichever pings second finds the ping of the other,
// be its own number smaller or, after failed pings, larger; it takes a new id and leaves the
// document to the other, which keeps its locks. Local times are told apart by the millisecond.
//
// A document that was removed is made anew by the next ping. Its process learns that, and takes a
// new id. Where a late ping or the copy of a ping came first and made the document, the removal is
// not noticed. That is harmless:
//
//   - The document had no mark. Then no lock was taken from the process, since a holder is
//     condemned before it is overtaken; whoever finds no document inserts a condemned one, and that
//     no ping matches, neither a late one nor the next.
//   - The document was condemned, and an operator removed it, or it was pruned after four days.
//     Then the process had been silent for the takeover time, so the term of every guard it had is
//     over by its own clock and is not revived. The next ping begins another term under the old id;
//     its acquisitions have new sessions, and an eviction names the old ones.
//   - The process has closed, or has taken a new id. Then the document stands for no guard. A
//     contender that watches begins anew, once; then it is pruned.
//
// # What is not promised
//
// A term that has not ended says that nobody MAY have taken this process's locks by the takeover
// rule, while clock rates differ by less than takeover : hold. It does not protect against an
// operator who breaks a lock by hand; the reaper finds that with the next ping.
//
// # Cost
//
// One write for each interval, whatever the number of locks, one small read by which ghosts and
// vanished locks are found, and one hello by which an election is. Two goroutines for the process:
// one only pings, so that no chore can make a ping late.
package pinger
