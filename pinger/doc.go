// Package pinger sends the pings of one process: at regular intervals it updates the document of
// the process in the collection lockpings. One ping serves all locks of the process, as in every
// version of mongos. After a ping, the reaper repeats failed releases. It also releases ghosts,
// which are sessions that only the store knows; see [LockPinger.Reap]. The package also deletes old
// pings and creates the indexes.
//
// The package is independent of lock names, acquisition and takeover. An [Owner] reports the
// sessions of the process.
//
// # Terms
//
// A [Term] is a period in which the process may trust its locks. It begins with an acknowledged
// ping, and every further acknowledged ping renews it. It ends for good when one of these events
// happens:
//
//   - No ping was acknowledged for the hold time (takeover - margin). The hold time
//     counts from the SEND of the last acknowledged ping. It has passed as soon as the
//     monotonic clock or the wall clock has counted that time.
//   - The reply to a ping shows that a contender condemned the process, which means that
//     the contender declared it dead.
//   - The reply shows that the ping document differs from the last ping of this process.
//     One cause is a twin, a second process with the same id, for example after the
//     restore of a snapshot. The other cause is an operator who edited or removed the
//     document.
//   - The pinger is closed.
//
// A ping that is acknowledged after the end begins a new term. Guards belong to the term in which
// they were acquired, and are lost at its end.
//
//	             ping acknowledged                 ping acknowledged in time
//	(no term) ----------------------> [ term ] <-----------------------------+
//	    ^                               |  |  \______________________________/
//	    |   hold time passed, or closed |  | condemned, a twin, or removed
//	    +-------------------------------+  +--> new process id, then (no term)
//
// # Numbers
//
// Under each process id, the process numbers its pings 1, 2, 3 and so on. The number of a failed
// ping is not used again. The store accepts a ping only if its number is larger than the number in
// the document. So a delayed ping that arrives after a later one changes nothing.
//
// The store also checks that the document contains a ping of the same process. The field local of
// the document is the wall clock of the process at a ping. It must be the time of the last
// acknowledged ping, or of one of the 63 latest pings after that. If two processes share one id,
// the second process to ping finds the local time of the first process. The second process takes a
// new id, and the first process keeps the document and its locks. Local times are compared in
// milliseconds.
//
// If the document was removed, the next ping creates it again. The reply shows the creation, and
// the process takes a new id. If a delayed ping created the document first, the process does not
// detect the removal. This is safe in each case:
//
//   - The removed document was not condemned. Then no contender took a lock from the
//     process, because a contender first condemns the holder. If a contender finds no
//     document, it inserts a condemned one, and all pings of the process fail.
//   - The removed document was condemned. Then the process had been silent for the
//     takeover time, and all its guards are lost by its own clock. The next ping begins a
//     new term under the old id. Later acquisitions have new sessions, which no earlier
//     eviction names.
//   - The process has closed, or has taken a new id. Then the document protects no guard.
//     The delayed ping only makes a contender restart its watch of the process once.
//
// # Limits
//
// While a term lasts, the takeover rule lets no contender take the locks of the process. This
// assumes that the clocks of contender and holder differ in rate by less than the factor takeover /
// hold time. An operator may still break a lock by hand. The process detects the break after its
// next ping.
//
// # Cost
//
// Each interval costs one write for all locks, one small read that finds ghosts and vanished locks,
// and one hello that detects an election. The process has two goroutines. One of them only pings,
// so that no other work makes a ping late.
package pinger
