package takeover

import (
	"fmt"
	"time"
)

// Names of the rules in [Decision.Rule].
const (
	ruleWatch     = "watch"
	ruleWitnesses = "witnesses"
	ruleCondemned = "condemned"
)

// Decide says what a contender may do whose watch began with the look first and who has just
// looked again. For a first look both are the same. It is pure and total: every evidence has an
// answer, none makes it panic. With a policy that [Policy.Validate] refuses it never answers Take,
// unless the holder is condemned.
func Decide(first, now Evidence, p Policy) Decision { return decide(first, first, now, p) }

// decide is Decide with one look more: the last one before now. A server that moved between the
// last two looks restarts the watch even if it looks innocent against the first.
func decide(first, last, now Evidence, p Policy) Decision {
	switch {
	case now.Malformed != "":
		return malformed(now)
	case !now.Held:
		return Decision{Verdict: Free, Reason: "nobody holds the lock"}
	case now.Condemned != "" && !now.Foreign():
		return condemned(now)
	}
	j := judgement{
		first: first, last: last, now: now, p: p,
		takeover: takeoverTime(now, p),
		watched:  watchedFor(first, now),
	}
	if err := p.Validate(); err != nil {
		return Decision{
			Verdict: Watch, Remaining: max(j.takeover, 0),
			Reason: "no takeover by this policy: " + err.Error(),
		}
	}
	return j.decide()
}

// A judgement is the case at hand: a lock that is held and can be read, and a valid policy.
type judgement struct {
	first, last, now Evidence
	p                Policy
	takeover         time.Duration // T, at least 1 ns
	watched          time.Duration // at least 0
}

func (j *judgement) decide() Decision {
	before, cause := j.disturbance()
	if cause != "" {
		return j.restart(before, cause)
	}
	if j.watched >= j.takeover {
		return j.watchedOut()
	}
	if d, ok := j.shorter(); ok {
		return d
	}
	return j.wait()
}

// takeoverTime returns T. Generations 1 to 3 knew only the contender's own; a holder that recorded
// a longer one is given it. A holder that could be a mongos gets what every mongos gave: the
// foreign takeover time at least.
func takeoverTime(now Evidence, p Policy) time.Duration {
	t := max(p.Takeover, now.Recorded)
	if now.HasPing {
		t = max(t, now.PingTakeover)
	}
	if now.Foreign() {
		t = max(t, p.ForeignTakeover)
	}
	return t
}

// malformed answers for documents that no rule can be applied to. 1.8 and 2.x read them with
// default values, so that a lock without state was free; 3.2 and later returned UnsupportedFormat.
func malformed(now Evidence) Decision {
	return Decision{
		Verdict: Malformed,
		Reason:  printable(now.Malformed, textLimit) + "; never taken over until somebody repairs it",
	}
}

// condemned answers at once: whoever condemned the holder had watched it, and it cannot renew any
// more. No generation of mongos had it; a contender that died between forcing and acquiring
// left a free lock in 1.8 and 2.x, and nothing at all in 3.2.
func condemned(now Evidence) Decision {
	return Decision{
		Verdict: Take, Rule: ruleCondemned,
		Reason: fmt.Sprintf("%s is condemned: %s", holder(now), printable(now.Condemned, textLimit)),
	}
}

// disturbance returns why the watch cannot go on, and the look with which the present one does not
// go together; "" when it can.
func (j *judgement) disturbance() (before Evidence, cause string) {
	for _, differs := range []func(before, now *Evidence) string{changed, moved} {
		for _, before := range []*Evidence{&j.first, &j.last} {
			if cause := differs(before, &j.now); cause != "" {
				return *before, cause
			}
		}
	}
	return j.first, paused(j.now, j.p)
}

// restart begins anew. All generations from 2.0 on did so for a changed ping or ts.
func (j *judgement) restart(before Evidence, cause string) Decision {
	d := Decision{Verdict: Watch, Remaining: j.takeover, Restart: true}
	if pinged(before, j.now) || j.fresh() {
		d.Verdict = Held
		d.Reason = fmt.Sprintf("%s is alive: %s", holder(j.now), cause)
		if !pinged(before, j.now) {
			d.Reason = fmt.Sprintf("%s pinged %s ago; %s", holder(j.now), j.pingAge(), cause)
		}
		return d
	}
	d.Reason = fmt.Sprintf("watch of %s begins anew: %s; takeover after %s unchanged",
		holder(j.now), cause, figure(j.takeover))
	return d
}

// watchedOut is the ground rule, mongos 2.0 to 6.0: seen unchanged for the takeover time. They
// measured by the server's clock alone; 2.0 wanted more than the time (>), 3.2 and this at least
// the time (>=). A missing ping is a picture like any other, as in 2.0 and later.
func (j *judgement) watchedOut() Decision {
	return Decision{Verdict: Take, Rule: ruleWatch, Reason: j.picture() + " " + j.span(j.takeover)}
}

// wait answers for a lock that may not be taken yet: Held while the ping looks fresh, else Watch.
func (j *judgement) wait() Decision {
	verdict, age := Watch, ""
	if j.fresh() {
		verdict, age = Held, holder(j.now)+" pinged "+j.pingAge()+" ago; "
	}
	return Decision{
		Verdict: verdict, Remaining: j.takeover - j.watched,
		Reason: age + j.picture() + " " + j.span(j.takeover),
	}
}

// interval returns the ping interval by which the holder is measured: its own, or the contender's
// where it is unknown.
func (j *judgement) interval() time.Duration {
	if j.now.PingInterval > 0 {
		return j.now.PingInterval
	}
	return j.p.PingInterval
}

// tolerance returns by how much clocks may differ and still count as agreeing.
func (j *judgement) tolerance() time.Duration {
	return plus(j.p.MaxClockSkew, roundTrip(j.now)/2)
}

// fresh reports whether the ping looks alive by the server's clock: younger than two intervals,
// and not further in the future than clocks may differ (a server's reading may be a little older
// than a ping that arrived meanwhile). It only words the verdict; no takeover depends on it.
func (j *judgement) fresh() bool {
	if !j.now.HasPing || j.now.Server.IsZero() {
		return false
	}
	age := j.now.Server.Sub(j.now.Ping)
	return age >= -j.tolerance() && age < upTo(j.takeover, j.interval(), 2)
}

// pingAge writes the age of the ping by the server's clock, zero for one of this instant.
func (j *judgement) pingAge() string {
	return figure(max(j.now.Server.Sub(j.now.Ping), 0))
}

// picture names what has been watched.
func (j *judgement) picture() string {
	switch {
	case j.now.Lease:
		return fmt.Sprintf("lease of %s, renewal %d", holder(j.now), j.now.Seq)
	case j.now.HasPing:
		return "ping of " + holder(j.now)
	case j.now.Process != "":
		return "absence of a ping document of " + holder(j.now)
	default:
		return fmt.Sprintf("lock %s of %s", quoted(j.now.Name), holder(j.now))
	}
}

// span writes how long the picture stood, by which clocks, and how long it must.
func (j *judgement) span(need time.Duration) string {
	server := "unknown"
	if d, ok := byServer(j.first, j.now); ok {
		server = figure(d)
	}
	return "unchanged for " + figure(j.watched) + " of " + figure(need) +
		" (contender's clock " + figure(byOwnClock(j.first, j.now)) + ", server's clock " + server + ")"
}
