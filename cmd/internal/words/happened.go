package words

import (
	"cmp"
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

// Sentence describes an event of a lock and its cause in one sentence. The given function formats a
// process for display.
func Sentence(e history.Entry, name func(process string) string) string {
	process, other := name(e.Process), name(e.Previous)
	text := ""
	switch e.Kind {
	case Acquired:
		return process + " acquired it" + after(e.WaitedMS) + because(e.Why)
	case Granted:
		return process + " was granted it from the queue" + after(e.WaitedMS) + because(e.Why)
	case TakenOver:
		if text = process + " took it over"; e.Previous != "" {
			text += " from " + other
		}
		return text + because(death(e.Rule, e.Evidence))
	case Evicted:
		if text = other + " was evicted"; e.Fence == 0 {
			text += " from the queue"
		}
		if e.Process != "" { // the event of a break has no process
			text += " by " + process
		}
		return text + because(death(e.Rule, e.Evidence))
	case Broken:
		text = other + " lost it to a break"
		if e.Process != "" {
			text += " by " + process
		}
		return text + after(e.HeldMS) + because(e.Why)
	case Released:
		if text = " released it"; e.Cause != "" { // the lock may still be held, or was lost before
			text = " tried to release it"
		}
	case ReleasedLate:
		if e.Fence == 0 {
			return process + " released late an entry whose state was unknown"
		}
		return process + " released it late" + because(e.Cause)
	case Lost:
		text = " lost it"
	case Dropped:
		text = " dropped it without a release"
	default:
		text = ": " + Shown(e.Kind, 40)
	}
	return process + text + after(e.HeldMS) + because(e.Cause)
}

// Span converts milliseconds to a duration. It limits the result to the range from 0 to 100 years,
// because a foreign program may have stored any number.
func Span(ms int64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return time.Duration(min(max(0, ms), most.Milliseconds())) * time.Millisecond
}

func after(ms int64) string {
	d := Span(ms)
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

// deaths contains a short form of the evidence of each rule by which a process was declared dead.
var deaths = map[string]string{
	"silent":    "its process has missed two pings",
	"lease":     "its lease ran out",
	"condemned": "it was declared dead before",
	"watch":     "it was silent for the takeover time",
	"witnesses": "it was silent for the takeover time, by all clocks",
}

// death returns the short form of an evidence, or the evidence of an unknown rule.
func death(rule, evidence string) string { return cmp.Or(deaths[rule], evidence) }
