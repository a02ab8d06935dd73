// Package takeover decides whether a contender may take a lock from a holder that has fallen
// silent. It is the rule alone: evidence in, a verdict and its reason out. It does no I/O, has no
// clock of its own, keeps no state that it does not return, and imports only the standard library.
//
// [Decide] judges two looks, the first of a watch and the present one. [Observation] keeps them for
// a caller that looks again and again. [Evidence] is what a look shows, [Policy] is the contender's
// timing.
//
// # The formula
//
//	T       = max(contender's takeover time, the one in the lock, the one in the ping)
//	          and the foreign takeover time too, for a foreign holder
//	picture = (process, ping present, ping, local, seq present, seq), and ts for the same lock
//	watched = min(contender's monotonic clock: first look's REPLY to present look's SEND,
//	              server's clock: present look - first look, when both are known)
//
//	watch:      same picture, same primary, no pause, watched >= T             take
//	witnesses:  server - ping, contender - ping, server - local all >= T + skew,
//	            |server - contender| <= skew = MaxClockSkew + half a round trip,
//	            same picture, watched >= 3 ping intervals of the holder        take
//	sight:      as witnesses, in place of those three intervals: an earlier
//	            contender left word of this very seq, its clock and the server's
//	            agreed, and since then server's clock and contenders' clocks
//	            have both counted 2 ping intervals of the holder               take
//	condemned:  a holder of ours was condemned by a contender who had watched  take
//
// The lease of a holder, [Evidence.Lease], is judged by the same rules: its renewals are the pings,
// its life is T, and it is watched for its one session. It is never condemned: its process may
// live.
//
// The contender's age of the ping is taken at the SEND of the look: time that passes while a
// reply is under way speaks neither for nor against the holder.
//
// # States of one watch
//
//	                  +------------- any change: Restart -------------+
//	                  v                                               |
//	  look ---> first look ---> Held    ping looks fresh -------------+
//	                  |         Watch   silent, not long enough ------+
//	                  |         Skewed  witnesses contradict ---------+
//	                  |                                               |
//	                  |                      unchanged long enough    v
//	                  +------ condemned ---------------------------> Take
//
//	Free and Malformed are answers to a single look, from any state.
//
// A change in EITHER direction restarts: a seq that falls is as much a sign of somebody at work as
// one that rises.
//
// # Where each rule comes from
//
//	rule                          generation
//	age by the contender's clock  1.5.5 to 1.8, alone and in whole minutes; here a witness of three
//	unchanged for T               2.0 to 3.0 on the first config server's clock, 3.2 to 6.0 on the
//	                              primary's; here on two clocks
//	same ts                       2.0 on; here only where there is a ts to compare, since safety
//	                              hangs on the ping alone
//	new primary restarts          3.2 on, by the election id
//	server's clock went back      2.0 counted 0, 3.2 kept its record; here a restart
//	clocks checked three times    2.0 to 3.0, among config servers; here server against contender
//	                              and three ping intervals
//	no ping document              1.8 refused for ever, 2.0 on took it for very old; here Watch
//	seq, condemned, local, pause  none; ours
//	a foreign holder              watched as 2.0 to 6.0 watched each other, for their 15 minutes; its
//	                              mark counts for nothing, see [Evidence.Foreign]
//
// # What is assumed
//
// The RATE of a clock is bounded, its VALUE is not: over any stretch up to T a holder counts at
// least H for every T that a contender counts, H being the time for which the holder trusts a ping
// (three quarters of T by default). The watch rule needs nothing else: no value of any clock can
// make it take a lock whose holder still trusts it.
//
// The witnesses rule reads values as well, and bears any SINGLE wrong clock. The clocks that agree
// may differ by the skew, and the ages must exceed T by as much: so a ping is T old when its lock
// is taken, whatever MaxClockSkew the contender and whatever margin the holder has.
//
// A [Sight] is what an earlier contender left in the ping document of a silent process: the seq
// that it saw, the server's clock and its own. It stands in place of three intervals of own
// watching, for those who do not live that long, and never in place of the witnesses. Which clock
// could gain by it?
//
//	the holder's           it is in none of its figures; the witnesses hear it
//	the first contender's  contradicted by the server's clock of the same look, and by server against server
//	the second's           contradicted by the server's clock of the present look, and by server against server
//	the server's           all along: by the contenders, at both looks; at one of them: by that contender; between
//	                       the looks: by the present contender, and by contender against contender
//
// Each wrong one is contradicted by a pair that does not contain it, beside the three witnesses,
// which bear it by themselves. That the ping stood still between the two looks is no matter of
// clocks at all: seq only rises, the sight was written while it was as seen, and it still is. So
// what the sight must show is time, and it must show less of it than an own watch, since who left
// it found the ping two intervals old already: a holder whose clocks step under it must have been
// cut off for two intervals before that look and have sent nothing since.
//
// # What is not promised
//
// Take is not permission to act on the lock: between a look and an overtake anything may happen.
// The caller condemns the very ping that was watched, then overtakes naming the very session
// that was watched, both by compare-and-set.
//
// The witnesses rule does not bear two faults: a common step of the server's and the contender's
// clock together with a holder cut off for those three intervals, or for two before somebody left a
// sight, can take a lock whose holder still trusts it. [WatchOnly] drops the rule, and asks for no
// sight.
//
// A foreign holder is a mongos or MongoDB's own lock manager, see [Evidence.Foreign]. It cannot be
// condemned and may act on after it was overtaken, as it always could.
//
// Progress is not promised while a clock that must count stands still: with a frozen server clock
// the watch rule never gets there.
package takeover
