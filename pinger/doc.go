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
//   - when the answer carries another seq than expected: two processes share one id, as after the
//     restore of a snapshot, or somebody removed the document;
//   - when the pinger is closed.
//
// A ping that is acknowledged too late begins a new term; it never revives the old one. Guards
// belong to the term in which they were acquired and are lost with it.
//
//	             ping acknowledged                 ping acknowledged in time
//	(no term) ----------------------> [ term ] <-----------------------------+
//	    ^                               |  |  \______________________________/
//	    |   hold time passed, or closed |  | condemned, or seq not as expected
//	    +-------------------------------+  +--> new process id, then (no term)
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
