// Package takeover decides whether a contender may take a lock from a silent holder. It contains
// only the rule: it takes evidence, and returns a verdict with its reason. It does no I/O, has no
// clock, keeps no state that it does not return, and imports only the standard library.
//
// [Decide] judges two reads, the first and the present read of a watch. [Observation] keeps them
// for a caller that reads repeatedly. [Evidence] is the content of one read. [Policy] is the
// contender's timing.
//
// # The formula
//
//	T        = max(contender's takeover time, the one in the lock, the one in the ping),
//	           for a foreign holder at least the foreign takeover time
//	evidence = (process, ping present, ping, local, seq present, seq), and ts for the same lock
//	watched  = min(contender's monotonic clock: first read's REPLY to present read's SEND,
//	               server's clock: present read - first read, when both are known)
//
//	watch:      same evidence, same primary, no pause, watched >= T            take
//	witnesses:  server - ping, contender - ping, server - local all >= T + skew,
//	            |server - contender| <= skew = MaxClockSkew + half a round trip,
//	            same evidence, watched >= 3 ping intervals of the holder       take
//	record:     as witnesses, but instead of three intervals: an earlier
//	            contender recorded this very seq, its clock and the server's
//	            agreed, and since then server's clock and contenders' clocks
//	            have both counted 2 ping intervals of the holder               take
//	condemned:  a holder of ours was condemned by a contender that had watched take
//
// The lease of a holder, [Evidence.Lease], is judged by the same rules. Its renewals are the pings,
// its life is T, and its one session is watched. Its holder is never condemned, because the process
// may be alive.
//
// The contender's age of the ping is computed at the SEND of the read. The time until the reply is
// no evidence for or against the holder.
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
// A change in EITHER direction restarts the watch: a falling seq is a sign of activity, like a
// rising one.
//
// # Where each rule comes from
//
//	rule                          generation
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
//	seq, condemned, local, pause  ours, in no generation
//	a foreign holder              watched as 2.0 to 6.0 watched each other, for their 15 minutes; its
//	                              mark does not count, see [Evidence.Foreign]
//
// # Assumptions
//
// The RATE of a clock is bounded, its VALUE is not. In every period up to T, a holder counts at
// least H for every T that a contender counts. H is the time for which the holder trusts a ping
// (three quarters of T by default). The watch rule needs no other assumption: with every value of
// every clock, it takes no lock that its holder still trusts.
//
// The witnesses rule also reads clock values. It is safe with any SINGLE wrong clock. The clocks
// that agree may differ by the skew, and the ages must exceed T by the skew. So a ping is T old
// when its lock is taken, for every MaxClockSkew of the contender and every margin of the holder.
//
// A [Sight] is the record of an earlier contender in the ping document of a silent process. It has
// the seq that the contender read, the server's clock and the contender's clock. It replaces three
// intervals of watching, for processes that do not live that long. It never replaces the witnesses.
// Each wrong clock is contradicted by a pair of other clocks:
//
//	the holder's           it is in no figure of the record; the witnesses detect it
//	the first contender's  by the server's clock of the same read, and by server against server
//	the second's           by the server's clock of the present read, and by server against server
//	the server's           at both reads: by the contenders; at one of them: by that contender;
//	                       between them: by the present one, and by contender against contender
//
// The three witnesses, which are safe with one wrong clock by themselves, must also agree. No clock
// is needed to prove that the ping was unchanged between the two reads: seq only rises, the record
// was written while seq had this value, and seq still has it. So the record must only prove time.
// It must prove less time than a watch, because the ping was two intervals old at the first read. A
// holder whose clocks step must have been cut off for two intervals before that read, and must have
// sent no ping since.
//
// # Limits
//
// Take is not permission to act on the lock, because the lock may change between a read and a
// takeover. The caller condemns exactly the ping that was watched. Then it takes over and names
// exactly the session that was watched. Both steps are compare-and-set.
//
// The witnesses rule is not safe with two faults together. It can take a lock that its holder still
// trusts if the server's and the contender's clock step together while the holder is cut off for
// three intervals, or for two before a [Sight] was written. [WatchOnly] disables the rule and
// writes no such record.
//
// A foreign holder is a mongos or MongoDB's own lock manager, see [Evidence.Foreign]. It cannot be
// condemned, and may continue to act after a takeover, as it always could.
//
// Progress is not promised while a clock that must count has stopped. With a frozen server clock
// the watch rule never takes a lock.
package takeover
