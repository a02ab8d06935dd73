package takeover

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

const (
	ruleWatch     = "watch"
	ruleWitnesses = "witnesses"
	ruleCondemned = "condemned"
)

// Decide returns the verdict on a lock, from the first and the present read of a watch. At the
// first read both are equal. Decide has no side effects and never panics. If [Policy.Validate]
// returns an error, Decide returns Take only for a condemned holder.
func Decide(first, now Evidence, p Policy) Decision { return decide(first, first, now, p) }

// decide does the same as Decide, with a further argument: last is the read before the present
// read. A difference between these two reads restarts the watch, even if the first read of the
// watch equals the present read.
func decide(first, last, now Evidence, p Policy) Decision {
	switch {
	case now.Malformed != "":
		// mongos 1.8 and 2.x read a malformed document with default values, so a lock without the field
		// state was free. mongos 3.2 and later returned UnsupportedFormat.
		return Decision{Verdict: Malformed, Reason: printable(now.Malformed, textLimit) +
			"; never taken over until an operator repairs it"}
	case !now.Held:
		return Decision{Verdict: Free, Reason: "the lock is free"}
	case now.Condemned != "" && !now.Foreign():
		// A contender condemns a holder only after a watch, and the pings of a condemned holder fail. No
		// mongos had this rule.
		return Decision{Verdict: Take, Rule: ruleCondemned, Reason: fmt.Sprintf(
			"%s is condemned: %s", holder(now), printable(now.Condemned, textLimit))}
	}
	j := judge(first, now, p)
	if err := p.Validate(); err != nil {
		return Decision{Verdict: Watch, Remaining: max(j.takeover, 0),
			Reason: "no takeover by this policy: " + err.Error()}
	}
	// These events restart a watch:
	//   - A change of the evidence.
	//   - A new primary, if both reads know the primary. mongos 3.2 and later had this rule.
	//   - A step back of the server's clock. mongos 2.0 counted 0 after a step back, and
	//     mongos 3.2 waited.
	//   - A pause between two reads that is longer than MaxGap. No mongos had this rule.
	for _, before := range []*Evidence{&first, &last} {
		if cause := changed(before, &now); cause != "" {
			return j.restart(before, cause)
		}
	}
	if now.LongestGap > p.MaxGap {
		return j.restart(&first, fmt.Sprintf("no read for %s, more than the %s allowed",
			figure(now.LongestGap), figure(p.MaxGap)))
	}
	// The watch rule of mongos 2.0 to 6.0: the evidence was unchanged for the takeover time. mongos
	// used only the server's clock. mongos 2.0 compared with >, later versions with >=. A missing ping
	// is watched like a ping, as in mongos 2.0 and later.
	if j.watched >= j.takeover {
		return Decision{Verdict: Take, Rule: ruleWatch, Reason: j.unchanged()}
	}
	if d, ok := j.shorter(); ok {
		return d
	}
	d := Decision{Verdict: Watch, Remaining: j.takeover - j.watched, Reason: j.unchanged()}
	if j.fresh {
		d.Verdict, d.Reason = Held, holder(now)+" pinged "+figure(max(j.age, 0))+" ago; "+d.Reason
	}
	return d
}

// A judgement holds the figures from which Decide derives its verdict on a held lock.
type judgement struct {
	now         Evidence
	p           Policy
	takeover    time.Duration // T, at least 1 ns with a valid policy
	watched     time.Duration // at least 0; the smaller of own and server
	own, server time.Duration // watched time by the contender's and the server's clock, or unknown
	roundTrip   time.Duration // round trip of the present read, at least 0
	tolerance   time.Duration // clocks that differ by at most this much agree
	age         time.Duration // age of the ping by the server's clock, if both are known
	fresh       bool
}

func judge(first, now Evidence, p Policy) judgement {
	// T is the longest of the contender's takeover time and the times that the holder has recorded.
	// For a foreign holder, T is at least ForeignTakeover. Its default, 15 minutes, is the fixed
	// takeover time of mongos.
	t := max(p.Takeover, now.Recorded)
	if now.HasPing {
		t = max(t, now.PingTakeover)
	}
	if now.Foreign() {
		t = max(t, p.ForeignTakeover)
	}
	j := judgement{now: now, p: p, takeover: t}
	j.watched, j.own, j.server = watchedFor(first, now)
	j.roundTrip = minus(replied(now), now.Sent)
	j.tolerance = minus(p.MaxClockSkew, -j.roundTrip/2)
	if now.HasPing && !now.Server.IsZero() {
		// A ping is fresh if it is younger than two intervals. A ping in the future is fresh if it is
		// ahead by at most the tolerance. Freshness decides only between the verdicts Held and Watch.
		j.age = now.Server.Sub(now.Ping)
		j.fresh = j.age >= -j.tolerance && j.age < j.intervals(2)
	}
	return j
}

// intervals returns n ping intervals of the holder, but at most T. If the holder's interval is
// unknown, the contender's interval counts.
func (j *judgement) intervals(n time.Duration) time.Duration {
	d := j.p.PingInterval
	if j.now.PingInterval > 0 {
		d = j.now.PingInterval
	}
	if d > j.takeover/n {
		return j.takeover
	}
	return n * d
}

// changed describes the first difference between two reads that restarts a watch, or returns "". It
// compares the field seq because two pings may have the same time, if the server's clock has
// stopped. It compares the field local because a second process with the same id has another local
// time. It compares the lock session ts only between reads of the same lock. mongos 2.0 to 3.0
// compared process id, ping and ts. mongos 3.2 to 6.0 compared ping and ts.
func changed(before, now *Evidence) string {
	switch {
	case !before.Held || before.Malformed != "":
		return "the read before showed no holder"
	case before.Process != now.Process:
		return fmt.Sprintf("the holder was %s", holder(*before))
	case before.HasPing != now.HasPing && now.HasPing:
		return "a ping document has appeared"
	case before.HasPing != now.HasPing:
		return "the ping document has gone"
	case before.HasSeq != now.HasSeq:
		return "the ping document has another form"
	case before.Seq != now.Seq:
		return fmt.Sprintf("seq went from %d to %d", before.Seq, now.Seq)
	case !before.Ping.Equal(now.Ping):
		return fmt.Sprintf("ping went from %s to %s", instant(before.Ping), instant(now.Ping))
	case !before.Local.Equal(now.Local):
		return fmt.Sprintf("local went from %s to %s", instant(before.Local), instant(now.Local))
	case before.Subject() != now.Subject():
		return fmt.Sprintf("the read before was of lock %s", quoted(before.Name))
	case before.Name == now.Name && before.TS != now.TS:
		return "another session holds the lock"
	case before.Primary != "" && now.Primary != "" && before.Primary != now.Primary:
		return fmt.Sprintf("primary %s instead of %s answered", quoted(now.Primary),
			quoted(before.Primary))
	case !before.Server.IsZero() && !now.Server.IsZero() && now.Server.Before(before.Server):
		return fmt.Sprintf("the server's clock went back from %s to %s", instant(before.Server),
			instant(now.Server))
	}
	return ""
}

// restart returns the decision for the first read of a new watch. The verdict is Held if the ping
// is fresh, or if the holder has pinged since the read before. A higher seq shows a ping. A foreign
// holder has no seq, so a later time in its ping document shows a ping.
func (j *judgement) restart(before *Evidence, cause string) Decision {
	now := &j.now
	pinged := before.Process == now.Process && before.HasPing && now.HasPing &&
		before.HasSeq == now.HasSeq
	if now.HasSeq {
		pinged = pinged && now.Seq > before.Seq
	} else {
		pinged = pinged && now.Ping.After(before.Ping)
	}
	d := Decision{Verdict: Held, Remaining: j.takeover, Restart: true}
	switch {
	case pinged:
		d.Reason = fmt.Sprintf("%s is alive: %s", holder(*now), cause)
	case j.fresh:
		d.Reason = fmt.Sprintf("%s pinged %s ago; %s", holder(*now), figure(max(j.age, 0)), cause)
	default:
		d.Verdict = Watch
		d.Reason = fmt.Sprintf("watch of %s begins anew: %s; takeover after %s unchanged",
			holder(*now), cause, figure(j.takeover))
	}
	return d
}

func (j *judgement) unchanged() string {
	what := ""
	switch {
	case j.now.Lease:
		what = fmt.Sprintf("lease of %s, renewal %d", holder(j.now), j.now.Seq)
	case j.now.HasPing:
		what = "ping of " + holder(j.now)
	case j.now.Process != "":
		what = "absence of a ping document of " + holder(j.now)
	default:
		what = fmt.Sprintf("lock %s of %s", quoted(j.now.Name), holder(j.now))
	}
	return what + " " + j.span(j.takeover)
}

// span describes for how long the evidence has been unchanged by each clock, and how long a
// takeover needs.
func (j *judgement) span(need time.Duration) string {
	server := "unknown"
	if j.server != unknown {
		server = figure(j.server)
	}
	return "unchanged for " + figure(j.watched) + " of " + figure(need) +
		" (contender's clock " + figure(j.own) + ", server's clock " + server + ")"
}

// Limits for the text of other programs in a reason, in characters.
const (
	idLimit   = 200
	textLimit = 800
)

// printable escapes unprintable characters and cuts the text to limit characters.
func printable(s string, limit int) string {
	special := func(r rune) bool { return r < ' ' || r > '~' }
	if len(s) <= limit && strings.IndexFunc(s, special) < 0 { // the usual case
		return s
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > limit {
			b.WriteString("...")
			break
		}
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func quoted(s string) string {
	return `"` + strings.ReplaceAll(printable(s, idLimit), `"`, `\"`) + `"`
}

func holder(e Evidence) string {
	if e.Process == "" {
		return "a holder without a process id"
	}
	return quoted(e.Process)
}

// figure formats a duration to the millisecond.
func figure(d time.Duration) string { return d.Round(time.Millisecond).String() }

func instant(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
