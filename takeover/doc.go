// Package takeover decides whether a contender may take a lock from a silent holder. It contains
// only the rules: it takes evidence, and returns a verdict with its reason. It has no I/O, no clock
// and no state, and imports only the standard library.
//
// A watch is a series of reads of one silent holder. [Evidence] is one read, and [Observation] is a
// watch. [Decide] returns the verdict, from the first and the present read. [Policy] contains the
// time limits of the contender. A foreign holder is a mongos, or MongoDB's own lock manager; see
// [Evidence.Foreign].
//
// # The formula
//
//	T        = max(takeover times of the contender, in the lock, in the ping document),
//	           for a foreign holder at least the foreign takeover time
//	evidence = (process, ping present, ping, local, seq present, seq), and ts for the same lock
//	watched  = min(contender's monotonic clock: first read's REPLY to present read's SEND,
//	               server's clock: present read - first read, when both are known)
//
//	watch:      same evidence, same primary, no pause, watched >= T            take
//	witnesses:  server - ping, contender - ping, server - local all >= T + skew,
//	            |server - contender| <= skew = MaxClockSkew + half a round trip,
//	            same evidence, watched >= 3 ping intervals of the holder       take
//	record:     as witnesses, but instead of watched >= 3 ping intervals:
//	            an earlier contender recorded the same seq, its clock agreed
//	            with the server's clock, and since then the server's clock
//	            and the clocks of the contenders have both counted
//	            2 ping intervals of the holder                                 take
//	condemned:  another contender has watched and condemned the holder         take
//
// In the formula, server and contender are clocks at the present read. The field ping is the
// server's clock at the last ping, local is the holder's clock at the last ping, and seq is the
// number of that ping. The field ts of the lock identifies one acquisition. The age contender -
// ping uses the contender's clock at the SEND of the read.
//
// The same rules judge a lease, see [Evidence.Lease]. Its renewals are the pings, and its duration
// is T. The holder of a lease is not condemned, because its process may be alive.
//
// # States of one watch
//
//	                  +------------- any change: Restart -------------+
//	                  v                                               |
//	  read ---> first read ---> Held    ping is fresh ----------------+
//	                  |         Watch   silent, not long enough ------+
//	                  |         Skewed  witnesses contradict ---------+
//	                  |                                               |
//	                  |                      unchanged long enough    v
//	                  +------ condemned ---------------------------> Take
//
//	Free and Malformed are verdicts on a single read, from any state.
//
// A change in EITHER direction restarts the watch. A lower seq is also a sign of activity.
//
// # Where each rule comes from
//
//	rule                          versions of mongos
//	age by the contender's clock  1.5.5 to 1.8, alone and in whole minutes; here one of three
//	                              witnesses
//	unchanged for T               2.0 to 3.0 on the first config server's clock, 3.2 to 6.0 on the
//	                              primary's; here on two clocks
//	same ts                       2.0 on; here only if there is a ts to compare, because safety
//	                              depends on the ping alone
//	new primary restarts          3.2 on, by the election id
//	server's clock went back      2.0 counted 0, 3.2 kept its record; here a restart
//	clocks checked three times    2.0 to 3.0, among config servers; here server against contender
//	                              and three ping intervals
//	no ping document              1.8 never took the lock, 2.0 on treated it as very old; here
//	                              Watch
//	seq, condemned, local, pause  in no mongos
//	a foreign holder              watched as 2.0 to 6.0 watched each other, for their 15 minutes; a
//	                              condemnation in its ping does not count, see [Evidence.Foreign]
//
// # Assumptions
//
// The watch rule assumes a bound for the RATES of clocks: while a contender counts T, the holder
// counts at least H. H is the time for which the holder trusts a ping, three quarters of T by
// default. The watch rule does not depend on the VALUES of clocks.
//
// The witnesses rule also uses clock values. It is safe with any SINGLE wrong clock. Two right
// clocks may differ by the skew, so the ages must exceed T by the skew.
//
// A [Sight] is an observation that an earlier contender recorded in the ping document of a silent
// process. It contains the seq that the contender read, the server's clock and the contender's
// clock. For contenders that live less than three intervals, the record replaces the watch of three
// intervals. The three witnesses must still agree. If one clock is wrong, another clock contradicts
// it:
//
//	the holder's             the witnesses disagree; the record does not use this clock
//	the first contender's    it differs from the server's clock at the first read
//	the second contender's   it differs from the server's clock at the present read
//	the server's             it differs from a contender's clock at one or both reads
//
// No clock is needed to prove that the ping was unchanged: seq only rises, and both reads have the
// same seq. So the clocks of the record prove only the time between the reads. Two intervals are
// enough, because the ping was already two intervals old at the first read.
//
// # Limits
//
// The lock may change after the verdict Take. So the caller first condemns exactly the ping that
// was watched, and then evicts exactly the session that was watched. Both steps are
// compare-and-set.
//
// The witnesses rule is not safe with two faults together. Suppose that the clocks of the server
// and the contender step together while the holder is cut off. The rule can then take a lock that
// the holder still trusts, if the holder is cut off for three intervals. Two intervals are enough
// if a contender records an observation meanwhile. With [WatchOnly] a contender does not use the
// witnesses rule, and records no observation.
//
// A foreign holder cannot be condemned. It may continue to act after a takeover.
//
// If the server's clock has stopped, the watch rule never takes a lock.
package takeover
