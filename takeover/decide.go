package takeover

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
)

// Names of the rules in [Decision.Rule].
const (
	ruleWatch     = "watch"
	ruleWitnesses = "witnesses"
	ruleCondemned = "condemned"
)

// Decide judges a watch by its first read and the present one. On the first read both are equal.
// Decide is pure and total: it returns a verdict for any Evidence and never panics. With a policy
// that [Policy.Validate] refuses, it returns Take only for a condemned holder.
func Decide(first, now Evidence, p Policy) Decision { return decide(first, first, now, p) }

// decide is Decide with one more read, the last one before now. A server that moved between the
// last two reads restarts the watch, even if the first and the present read agree.
func decide(first, last, now Evidence, p Policy) Decision {
	switch {
	case now.Malformed != "":
		// mongos 1.8 and 2.x read such documents with default values, so a lock without state was
		// free. 3.2 and later returned UnsupportedFormat.
		return Decision{Verdict: Malformed, Reason: printable(now.Malformed, textLimit) +
			"; never taken over until somebody repairs it"}
	case !now.Held:
		return Decision{Verdict: Free, Reason: "the lock is free"}
	case now.Condemned != "" && !now.Foreign():
		// The contender that condemned the holder had watched it, and the holder can no longer
		// renew. No generation of mongos had this rule. A contender that died between forcing and
		// acquiring left a free lock in 1.8 and 2.x, and no trace in 3.2.
		return Decision{Verdict: Take, Rule: ruleCondemned, Reason: fmt.Sprintf(
			"%s is condemned: %s", holder(now), printable(now.Condemned, textLimit))}
	}
	j := judge(first, now, p)
	if err := p.Validate(); err != nil {
		return Decision{Verdict: Watch, Remaining: max(j.takeover, 0),
			Reason: "no takeover by this policy: " + err.Error()}
	}
	if before, cause := disturbance(&first, &last, &now, p); cause != "" {
		return j.restart(before, cause)
	}
	// The watch rule of mongos 2.0 to 6.0: unchanged for the takeover time. mongos measured by the
	// server's clock alone. 2.0 required more than the time (>), 3.2 and this rule at least the
	// time (>=). A missing ping is watched like other evidence, as in 2.0 and later.
	if j.watched >= j.takeover {
		return Decision{Verdict: Take, Rule: ruleWatch, Reason: j.unchanged()}
	}
	if d, ok := j.shorter(); ok {
		return d
	}
	d := Decision{Verdict: Watch, Remaining: j.takeover - j.watched, Reason: j.unchanged()}
	if j.fresh {
		d.Verdict, d.Reason = Held, holder(now)+" pinged "+j.pingAge()+" ago; "+d.Reason
	}
	return d
}

// A judgement is what Decide measures for a readable, held lock.
type judgement struct {
	first, now  Evidence
	p           Policy
	takeover    time.Duration // T, at least 1 ns with a valid policy
	watched     time.Duration // at least 0; the smaller of own and server
	own, server time.Duration // watched time by the contender's and the server's clock, or unknown
	roundTrip   time.Duration // round trip of the present read, at least 0
	tolerance   time.Duration // clocks that differ by at most this much agree
	fresh       bool
}

func judge(first, now Evidence, p Policy) judgement {
	j := judgement{first: first, now: now, p: p, takeover: takeoverTime(now, p)}
	j.watched, j.own, j.server = watchedFor(first, now)
	j.roundTrip = minus(replied(now), now.Sent)
	j.tolerance = minus(p.MaxClockSkew, -j.roundTrip/2)
	if now.HasPing && !now.Server.IsZero() {
		// A ping is fresh if it is younger than two intervals, and not further in the future than
		// clocks may differ. A server's reading may be slightly older than a ping that arrived in
		// between. Freshness only changes the wording of the verdict; no takeover depends on it.
		age := now.Server.Sub(now.Ping)
		j.fresh = age >= -j.tolerance && age < j.intervals(2)
	}
	return j
}

// takeoverTime returns T, the takeover time. Generations 1 to 3 used only the contender's. Here a
// longer one that the holder recorded counts. A holder that may be a mongos gets at least the
// foreign takeover time, which every mongos gave.
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

// intervals returns n ping intervals of the holder, at most the takeover time. If the holder's
// interval is unknown, the contender's interval counts.
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

// changed compares the evidence of two reads. It returns the first difference in words, or "".
// mongos 2.0 to 3.0 compared process id, ping and ts; 3.2 to 6.0 compared ping and ts. Here seq is
// also compared, so that a frozen or coarse clock of the server hides no ping. A different local
// reveals a second process with the same id. ts is compared for reads of the same lock. Reads of
// different locks belong together only if one watch serves them (see [Evidence.Subject]).
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
	}
	return ""
}

// disturbance returns the reason why the watch cannot continue, or "". It also returns the read
// that differs from the present one. A watch ends with a change of the evidence, and with:
//   - A new primary, as in mongos 3.2 and later, which compared election ids. A term that is
//     unknown in one of the reads cannot be compared.
//   - A server's clock that went back: mongos 2.0 counted 0, mongos 3.2 warned and waited.
//   - A pause between two reads. No generation of mongos had this rule: two reads fifteen minutes
//     apart were enough, without a read between them.
func disturbance(first, last, now *Evidence, p Policy) (before *Evidence, cause string) {
	for _, before = range []*Evidence{first, last} {
		if cause = changed(before, now); cause != "" {
			return before, cause
		}
	}
	for _, before = range []*Evidence{first, last} {
		switch {
		case before.Primary != "" && now.Primary != "" && before.Primary != now.Primary:
			return before, fmt.Sprintf("primary %s instead of %s answered",
				quoted(now.Primary), quoted(before.Primary))
		case !before.Server.IsZero() && !now.Server.IsZero() && now.Server.Before(before.Server):
			return before, fmt.Sprintf("the server's clock went back from %s to %s",
				instant(before.Server), instant(now.Server))
		}
	}
	if now.LongestGap > p.MaxGap {
		return first, fmt.Sprintf("no read for %s, more than the %s allowed",
			figure(now.LongestGap), figure(p.MaxGap))
	}
	return first, ""
}

// restart returns the decision for the first read of a new watch. All generations from 2.0 on
// restarted after a changed ping or ts. The verdict is Held if the holder pinged after the previous
// read: its seq rose or, for a foreign holder, its ping became younger.
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
		d.Reason = fmt.Sprintf("%s pinged %s ago; %s", holder(*now), j.pingAge(), cause)
	default:
		d.Verdict = Watch
		d.Reason = fmt.Sprintf("watch of %s begins anew: %s; takeover after %s unchanged",
			holder(*now), cause, figure(j.takeover))
	}
	return d
}

// pingAge formats the age of the ping by the server's clock. A ping in the future has age zero.
func (j *judgement) pingAge() string { return figure(max(j.now.Server.Sub(j.now.Ping), 0)) }

// unchanged describes the watched evidence, and how long and by which clocks it has been unchanged.
// It also gives the required time.
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

// span describes how long and by which clocks the evidence has been unchanged, and the required
// time.
func (j *judgement) span(need time.Duration) string {
	server := "unknown"
	if j.server != unknown {
		server = figure(j.server)
	}
	return "unchanged for " + figure(j.watched) + " of " + figure(need) +
		" (contender's clock " + figure(j.own) + ", server's clock " + server + ")"
}

// Longest foreign strings in a reason, in characters.
const (
	idLimit   = 200
	textLimit = 800
)

// printable escapes unprintable characters and cuts the text to limit characters.
func printable(s string, limit int) string {
	special := func(r rune) bool { return r < ' ' || r > '~' }
	if len(s) <= limit && strings.IndexFunc(s, special) < 0 { // nearly always
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

// quoted returns printable text in quotation marks, with escaped inner quotation marks.
func quoted(s string) string {
	return `"` + strings.ReplaceAll(printable(s, idLimit), `"`, `\"`) + `"`
}

// holder names the holder of e.
func holder(e Evidence) string {
	if e.Process == "" {
		return "a holder without a process id"
	}
	return quoted(e.Process)
}

// figure formats a duration to the millisecond. A saturated duration is described in words.
func figure(d time.Duration) string {
	switch d {
	case math.MaxInt64:
		return "more than 292 years"
	case math.MinInt64:
		return "less than -292 years"
	}
	if d > -time.Millisecond && d < time.Millisecond {
		return d.String()
	}
	return d.Round(time.Millisecond).String()
}

// instant formats a clock's reading in UTC.
func instant(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
