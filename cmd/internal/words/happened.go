package words

import (
	"regexp"
	"time"

	"mongodlm/distlock/history"
)

// The kinds of events, as in package distlock.
const (
	Acquired     = "acquired"
	Released     = "released"
	TakenOver    = "taken over"
	Broken       = "broken"
	Granted      = "granted"
	ReleasedLate = "released late"
	Lost         = "lost"
	Dropped      = "dropped"
	Evicted      = "evicted"
)

// A Happening is an event of a lock. Its strings are unescaped, as the history stores them.
type Happening struct {
	Kind, Process, Previous, Rule, Evidence, Cause, Why string
	Fence                                               int64
	Held, Waited                                        time.Duration
}

// Happened returns an entry of the history as a Happening.
func Happened(e history.Entry) Happening {
	return Happening{Kind: e.Kind, Process: e.Process, Previous: e.Previous, Rule: e.Rule,
		Evidence: e.Evidence, Cause: e.Cause, Why: e.Why, Fence: e.Fence, Held: Span(e.HeldMS),
		Waited: Span(e.WaitedMS)}
}

// Sentence describes the event and its cause in one sentence. The given function formats a process
// for display.
func (h Happening) Sentence(name func(process string) string) string {
	process, other := name(h.Process), name(h.Previous)
	text := ""
	switch h.Kind {
	case Acquired:
		return process + " acquired it" + after(h.Waited) + because(h.Why)
	case Granted:
		return process + " was granted it from the queue" + after(h.Waited) + because(h.Why)
	case TakenOver:
		if text = process + " took it over"; h.Previous != "" {
			text += " from " + other
		}
		return text + because(Death(h.Rule, h.Evidence))
	case Evicted:
		if text = other + " was evicted"; h.Fence == 0 {
			text += " from the queue"
		}
		if h.Process != "" { // the event of a break has no process
			text += " by " + process
		}
		return text + because(Death(h.Rule, h.Evidence))
	case Broken:
		text = other + " lost it to a break"
		if h.Process != "" {
			text += " by " + process
		}
		return text + after(h.Held) + because(h.Why)
	case Released:
		return process + " released it" + after(h.Held) + because(h.Cause)
	case ReleasedLate:
		if h.Fence == 0 {
			return process + " released late an entry whose state was unknown"
		}
		return process + " released it late" + because(h.Cause)
	case Lost:
		text = " lost it"
	case Dropped:
		text = " dropped it without a release"
	default:
		text = ": " + Shown(h.Kind, 40)
	}
	return process + text + after(h.Held) + because(h.Cause)
}

// Span converts milliseconds to a duration. It limits the result to the range from 0 to 100 years,
// because a foreign program may have stored any number.
func Span(ms int64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return time.Duration(min(max(0, ms), most.Milliseconds())) * time.Millisecond
}

func after(d time.Duration) string {
	if d < 50*time.Millisecond { // a shorter duration would be "0s"
		return ""
	}
	return " after " + Age(d)
}

// maxReason is the largest length of a displayed reason, in runes. No valid reason is longer.
const maxReason = 1024

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + Shown(why, maxReason)
}

// These expressions match the durations in the evidence of package takeover.
var (
	unchangedFor = regexp.MustCompile(`unchanged for (\S+) of (\S+)`)
	olderThan    = regexp.MustCompile(`is older than ([^\s:]+): `)
)

// Death returns a short form of the evidence by which a rule declared a process dead. If it knows
// no short form, it returns the evidence unchanged.
func Death(rule, evidence string) string {
	still, older := unchangedFor.FindStringSubmatch(evidence), olderThan.FindStringSubmatch(evidence)
	switch {
	case rule == "silent":
		return "its process has missed two pings"
	case rule == "lease":
		return "its lease ran out"
	case older != nil:
		return "silent for more than " + older[1] + ", by all clocks"
	case still != nil:
		return "silent for " + still[1] + " of " + still[2]
	}
	return evidence
}
