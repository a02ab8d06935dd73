package takeover

import (
	"fmt"
	"time"
)

// ages are the three witnesses: the age of the same ping by different pairs of clocks.
type ages struct {
	server    time.Duration // server's clock against ping, which the server stamped
	contender time.Duration // contender's wall clock, when the look was sent, against ping
	late      time.Duration // the same when the reply was there
	holder    time.Duration // server's clock against local, which the holder stamped
}

func agesOf(e Evidence) ages {
	late := e.Wall.Sub(e.Ping)
	return ages{
		server:    e.Server.Sub(e.Ping),
		contender: minus(late, roundTrip(e)),
		late:      late,
		holder:    e.Server.Sub(e.Local),
	}
}

// old returns how many of the three say that the ping is at least t old.
func (a ages) old(t time.Duration) int {
	n := 0
	for _, age := range []time.Duration{a.server, a.contender, a.holder} {
		if age >= t {
			n++
		}
	}
	return n
}

// least returns the smallest of the three.
func (a ages) least() time.Duration { return min(a.server, a.contender, a.holder) }

// backwards reports whether a witness sees the ping in its future by more than clocks may differ.
// mongos 1.8 had the test for the contender's clock, without any allowance.
func (a ages) backwards(allowed time.Duration) bool {
	return min(a.server, a.late, a.holder) < -allowed
}

func (a ages) String() string {
	return fmt.Sprintf("server %s, contender %s, holder %s",
		figure(a.server), figure(a.contender), figure(a.holder))
}

// witnessed reports whether the shorter rule can be asked at all: all three clocks are there, and
// the holder can be condemned.
func (j *judgement) witnessed() bool {
	return j.p.Rule != WatchOnly && j.now.HasPing && j.now.HasSeq &&
		!j.now.Server.IsZero() && !j.now.Wall.IsZero() && !j.now.Local.IsZero()
}

// shorter is the rule that may take a lock before it was watched for T; ok is false when it has
// nothing to say. mongos 1.8 compared the contender's clock with the ping and took at the first
// look, on the word of that one pair of clocks. Here three pairs must agree, server and contender
// must show the same time, and the ping must have stood still for three of the holder's intervals
// (the three skew checks of mongos 2.0 to 3.0), or for two since an earlier contender left a
// [Sight] of it. All three ages must exceed T by as much as the clocks of server and contender may
// differ: so the ping is T old, whichever one clock is wrong.
func (j *judgement) shorter() (d Decision, ok bool) {
	if !j.witnessed() {
		return Decision{}, false
	}
	a := agesOf(j.now)
	if a.backwards(j.tolerance()) {
		return j.skewed("a clock shows a time before the ping", a), true
	}
	old := a.old(j.takeover)
	switch {
	case old == 0:
		return Decision{}, false
	case old < 3:
		return j.skewed("clocks disagree", a), true
	case apart(j.now.Server, j.now.Wall) > j.tolerance():
		return j.skewed("the clocks of server and contender differ too much", a), true
	}
	return j.agreed(a), true
}

// agreed answers when all witnesses say that the ping is old enough.
func (j *judgement) agreed(a ages) Decision {
	agree := fmt.Sprintf("all clocks say that the ping of %s is older than %s: %s",
		holder(j.now), figure(j.takeover), a)
	need := upTo(j.takeover, j.interval(), 3)
	agree += "; " + j.span(need)
	if early := j.takeover + j.tolerance() - a.least(); early > 0 {
		const why = "; clocks may differ by %s, so that it must be older by as much"
		left := min(max(early, need-j.watched), j.takeover-j.watched)
		return Decision{Verdict: Watch, Remaining: left,
			Reason: agree + fmt.Sprintf(why, figure(j.tolerance()))}
	}
	if j.watched >= need {
		return Decision{Verdict: Take, Rule: ruleWitnesses, Reason: agree}
	}
	remaining, seen := j.sightedLongEnough(need - j.watched)
	if remaining == 0 {
		return Decision{Verdict: Take, Rule: ruleWitnesses, Reason: agree + seen}
	}
	return Decision{Verdict: Watch, Remaining: remaining, Reason: agree + seen}
}

// skewed answers when the witnesses contradict each other: then only the ground rule may decide.
// mongos 2.0 to 3.0 threw an exception (14023, later DistributedClockSkewed) for config servers
// that differed; nothing in 3.2 and later did.
func (j *judgement) skewed(what string, a ages) Decision {
	return Decision{
		Verdict: Skewed, Remaining: j.takeover - j.watched,
		Reason: fmt.Sprintf("%s: ping of %s is %s old, takeover time %s; "+
			"server's clock %s, contender's %s; %s", what, holder(j.now), a, figure(j.takeover),
			instant(j.now.Server), instant(j.now.Wall), j.span(j.takeover)),
	}
}
