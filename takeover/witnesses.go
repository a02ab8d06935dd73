package takeover

import (
	"fmt"
	"time"
)

// A Sight is an observation of a silent process, which an earlier contender wrote into the ping
// document of that process. So contenders that live only for seconds, for example in a nightly job,
// can continue one watch. The zero value means that there is no observation. mongos had none.
type Sight struct {
	Seq    int64     // number of the ping
	Server time.Time // server's clock at the read
	Local  time.Time // recording contender's wall clock at the reply
	By     string    // recording contender's process id; empty if there is no record
}

// witnessed reports whether the witnesses rule applies: the policy selects it, the ping has a seq,
// and all three clocks are known.
func (j *judgement) witnessed() bool {
	return j.p.Rule != WatchOnly && j.now.HasPing && j.now.HasSeq &&
		!j.now.Server.IsZero() && !j.now.Wall.IsZero() && !j.now.Local.IsZero()
}

// shorter applies the witnesses rule, which may take a lock after a watch that is shorter than T.
// The rule requires:
//
//   - All three ages of the ping exceed T by the tolerance. Each age is the difference of
//     two clocks, so the ping is older than T even if one clock is wrong.
//   - The clocks of the server and the contender agree.
//   - The ping was unchanged for three ping intervals of the holder, or for two intervals
//     since a recorded observation ([Sight]).
//
// ok is false if the rule gives no verdict. If the clocks contradict each other, the verdict is
// Skewed. mongos 1.8 compared only the contender's clock with the ping, and took the lock at the
// first read. mongos 2.0 to 3.0 failed with error 14023, later DistributedClockSkewed, if the
// clocks of config servers differed.
func (j *judgement) shorter() (d Decision, ok bool) {
	if !j.witnessed() {
		return Decision{}, false
	}
	// The witnesses are three ages of the same ping. Each age is the difference of two clocks.
	late := j.now.Wall.Sub(j.now.Ping)       // contender's wall clock at the reply minus ping
	contender := minus(late, j.roundTrip)    // contender's wall clock at the send minus ping
	server := j.now.Server.Sub(j.now.Ping)   // server's clock minus ping
	holders := j.now.Server.Sub(j.now.Local) // server's clock minus the holder's clock at the ping
	youngest, skew := min(server, contender, holders), ""
	switch {
	case min(server, late, holders) < -j.tolerance:
		skew = "a clock shows a time before the ping"
	case max(server, contender, holders) < j.takeover:
		return Decision{}, false
	case youngest < j.takeover:
		skew = "clocks disagree"
	case j.now.Server.Sub(j.now.Wall).Abs() > j.tolerance:
		skew = "the clocks of server and contender differ too much"
	}
	ages := fmt.Sprintf("server %s, contender %s, holder %s",
		figure(server), figure(contender), figure(holders))
	if skew != "" {
		return Decision{
			Verdict: Skewed, Remaining: j.takeover - j.watched,
			Reason: fmt.Sprintf("%s: ping of %s is %s old, takeover time %s; "+
				"server's clock %s, contender's %s; %s", skew, holder(j.now), ages, figure(j.takeover),
				instant(j.now.Server), instant(j.now.Wall), j.span(j.takeover)),
		}, true
	}
	return j.agreed(youngest, ages), true
}

// agreed decides on a ping with three ages of at least T. The argument least is the smallest age,
// and ages describes all three.
func (j *judgement) agreed(least time.Duration, ages string) Decision {
	need := j.intervals(3)
	d := Decision{Verdict: Watch, Reason: fmt.Sprintf(
		"all clocks say that the ping of %s is older than %s: %s; %s",
		holder(j.now), figure(j.takeover), ages, j.span(need))}
	if early := j.takeover - least + j.tolerance; early > 0 {
		d.Remaining = min(max(early, need-j.watched), j.takeover-j.watched)
		d.Reason += fmt.Sprintf("; clocks may differ by %s, so that it must be older by as much",
			figure(j.tolerance))
		return d
	}
	d.Remaining = max(0, need-j.watched)
	if seen, ok := j.sighted(); ok && d.Remaining > 0 {
		enough := j.intervals(sightIntervals)
		d.Remaining = max(0, min(d.Remaining, minus(enough, seen)))
		d.Reason += fmt.Sprintf("; %s saw the same ping %s ago, %s are enough",
			printable(j.now.Sight.By, idLimit), figure(max(seen, 0)), figure(enough))
	}
	if d.Remaining == 0 {
		d.Verdict, d.Rule = Take, ruleWitnesses
	}
	return d
}

// sightIntervals is the required age of a recorded observation, in ping intervals of the holder. It
// is less than the three intervals of a watch, because the ping was already two intervals old when
// the observation was recorded.
const sightIntervals = 2

// sighted returns the age of the recorded observation: the smaller of the times by the server's
// clock and by the clocks of the two contenders. ok is false if the observation is of another ping,
// or if its two clocks disagree.
func (j *judgement) sighted() (d time.Duration, ok bool) {
	s := j.now.Sight
	if s.By == "" || s.Seq != j.now.Seq || s.Server.IsZero() || s.Local.IsZero() ||
		s.Server.Sub(s.Local).Abs() > j.tolerance {
		return 0, false
	}
	byServer, byContenders := j.now.Server.Sub(s.Server), minus(j.now.Wall.Sub(s.Local), j.roundTrip)
	return min(byServer, byContenders), true
}

// Sighting returns the observation that a contender should record after this read. The parameter by
// is the contender's process id. ok is true if all these conditions hold: the policy selects the
// witnesses rule, the process is silent and can be condemned, the clocks agree, and the ping
// document has no usable observation yet.
func (e Evidence) Sighting(by string, p Policy) (s Sight, ok bool) {
	j := judge(e, e, p)
	switch {
	case p.Validate() != nil || p.Rule != Witnesses,
		!e.Held || e.Malformed != "" || e.Condemned != "" || e.Lease,
		!j.witnessed() || e.Foreign(),
		e.Server.Sub(e.Ping) < j.intervals(2),
		e.Server.Sub(e.Wall).Abs() > j.tolerance:
		return Sight{}, false
	}
	if seen, counts := j.sighted(); counts && seen >= -j.tolerance {
		return Sight{}, false
	}
	return Sight{Seq: e.Seq, Server: e.Server, Local: e.Wall, By: by}, true
}
