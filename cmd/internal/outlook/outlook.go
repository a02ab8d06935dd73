// Package outlook forecasts the takeover of a held lock: when the holder stops trusting the lock,
// when another process may take the lock, and which process holds it next. The forecast follows the
// rules of package takeover. The package also formats the forecast as text.
package outlook

import (
	"cmp"
	"fmt"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/takeover"
)

// An Outlook is the forecast for a lock if its holder stops pinging now. All times count from the
// moment at which the lock was read.
type Outlook struct {
	Process string `json:"process"`
	// Rule is the rule by which a contender takes the lock: "condemned", "lease", "witnesses" or
	// "watch", as in package takeover. It is "never" if no rule applies.
	Rule       string `json:"rule"`
	TakeoverMS int64  `json:"takeoverMS"` // the lifetime of the lease if Rule is "lease"
	// LostInMS is the time in milliseconds until the holder stops trusting the lock, if its process is
	// still alive. It assumes the default Margin of package distlock. It is null if unknown.
	LostInMS *int64 `json:"lostInMS"`
	// EarliestMS is the time in milliseconds until a contender that has already read the lock can take
	// it. LatestMS is this time for a contender that reads the lock for the first time now. LatestMS
	// holds even if the clocks are wrong. Both are null if no contender may take the lock.
	EarliestMS *int64 `json:"takenInMS"`
	LatestMS   *int64 `json:"takenAtTheLatestInMS"`
	Others     int    `json:"others"` // the number of other holders
	// Next is the process of the first live waiter. It is empty without such a waiter. Waiters in the
	// process of the holder count only if the rule is "lease". Under every other rule, they die
	// together with the holder. Passed is the number of waiters in front of Next.
	Next   string `json:"next"`
	Passed int    `json:"passedOver"`

	pulse string        // the sign of life: ping or renewal; empty without a ping
	age   time.Duration // the age of the pulse; negative when unknown
	// watched is the longest time for which a live waiter has seen no new ping or renewal of the
	// holder. It is negative if unknown.
	watched time.Duration
}

// By default, a holder stops trusting its lock when 1/marginShare of the takeover time remains.
const marginShare = 4

// Foresee returns the forecast for a lock if its holder h stops pinging now. It applies the rules
// of package takeover. The parameter others is the number of other holders. Foresee skips dead
// waiters, and waiters that die together with h.
func Foresee(h distlock.LockInfo, others int, queue []distlock.LockInfo) Outlook {
	e := takeover.Evidence{Held: true, Process: h.Process, Recorded: h.Takeover, HasPing: h.HasPing,
		HasSeq: !h.Foreign, PingInterval: h.PingEvery}
	if h.BadPing != nil {
		e.Malformed = h.BadPing.Error()
	}
	if h.Condemned {
		e.Condemned = "marked"
	}
	p := takeover.Policy{Takeover: cmp.Or(h.Takeover, words.DefaultTakeover),
		ForeignTakeover: words.DefaultTakeover, PingInterval: words.DefaultPing,
		MaxGap: words.DefaultTakeover}
	o := Outlook{pulse: "ping", age: h.PingAge, watched: -1}
	for _, w := range queue {
		if w.Process != h.Process && w.HasPing && w.BadPing == nil && !w.Gone() && h.PingAge >= 0 {
			o.watched = max(o.watched, min(w.Age, h.PingAge))
		}
	}
	if !h.HasPing {
		o.pulse = ""
	}
	o.setTimes(e, p)
	if h.Lease > 0 && h.LeaseAge >= 0 && o.EarliestMS != nil {
		by := Outlook{pulse: "renewal", age: h.LeaseAge, watched: min(o.watched, h.LeaseAge)}
		by.setTimes(takeover.Evidence{Held: true, Process: h.Process, Lease: true, HasPing: true,
			HasSeq: true}, p.OfLease(h.Lease))
		if *by.EarliestMS < *o.EarliestMS {
			by.Rule = "lease"
			o = by
		}
	}
	o.Process, o.Others = h.Process, others
	for _, w := range queue {
		if !w.Gone() && (w.Process != h.Process || o.Rule == "lease") {
			o.Next = w.Process
			return o
		}
		o.Passed++
	}
	return o
}

// setTimes computes the rule and the times for a contender with policy p. It adds the age of the
// ping or renewal to the evidence e.
func (o *Outlook) setTimes(e takeover.Evidence, p takeover.Policy) {
	p.Rule = takeover.WatchOnly
	whole := takeover.Decide(e, e, p).Remaining
	untilOld := max(0, whole-o.age)
	if o.age >= 0 { // otherwise the age is unknown
		e.Ping, e.Local = time.Unix(0, 0), time.Unix(0, 0)
		e.Server = e.Ping.Add(o.age + untilOld)
		e.Wall = e.Server
	}
	p.Rule = takeover.Witnesses
	o.TakeoverMS, o.Rule = cmp.Or(whole, p.Takeover).Milliseconds(), "watch"
	d := takeover.Decide(e, e, p) // for an old ping and no watch
	earliest := untilOld
	switch watched := max(0, whole-o.watched); {
	case d.Verdict == takeover.Malformed:
		o.Rule = "never"
		return
	case d.Verdict == takeover.Take: // the holder is condemned
		o.Rule, earliest = d.Rule, 0
	case o.age < 0:
		earliest = 0
	case o.watched >= 0: // rule witnesses needs an old ping, and only a part of the watch
		if earliest = max(untilOld, d.Remaining-o.watched); earliest < watched {
			o.Rule = "witnesses"
		} else {
			earliest = watched
		}
	case d.Remaining < whole:
		if o.Rule = "witnesses"; earliest == 0 {
			earliest = d.Remaining
		}
	}
	o.EarliestMS, o.LatestMS = words.Milliseconds(earliest), words.Milliseconds(whole)
	if o.age >= 0 && !e.Foreign() {
		o.LostInMS = words.Milliseconds(max(0, whole-whole/marginShare-o.age))
	}
}

// A Line is one statement of a forecast, with a label.
type Line struct{ What, Text string }

// Lines returns the forecast as labeled statements. The given function formats a process for
// display.
func (o Outlook) Lines(name func(process string) string) []Line {
	switch o.Rule {
	case "never":
		return []Line{{"taken", "never: its ping is malformed"}}
	case "condemned":
		return []Line{{"taken", "immediately: a contender has declared it dead"},
			{"then", o.successor(name)}}
	}
	return append(o.times(), Line{"then", o.successor(name)})
}

func (o Outlook) successor(name func(process string) string) string {
	next := "the first caller gets it"
	switch {
	case o.Next != "":
		next = "the next waiter gets it: " + name(o.Next)
	case o.Passed == 0:
		next += "; no process waits"
	}
	if o.Passed > 0 {
		next += fmt.Sprintf(" (the %d before it in the queue are dead, or would die with the holder)",
			o.Passed)
	}
	if o.Others > 0 {
		return fmt.Sprintf("it remains held (other holders: %d); when there is room, %s", o.Others, next)
	}
	return next
}

func (o Outlook) times() (all []Line) {
	say := func(what, format string, args ...any) {
		all = append(all, Line{what, fmt.Sprintf(format, args...)})
	}
	evidence := fmt.Sprintf("the last %s is %s old", o.pulse, words.Age(o.age))
	switch {
	case o.pulse == "":
		evidence = "there is no ping"
	case o.age < 0:
		evidence = "the age of its ping is unknown without the server's clock"
	}
	limit := "takeover time"
	if o.Rule == "lease" {
		limit = "lease duration"
	}
	say("evidence", "%s; %v is the %s", evidence, time.Duration(o.TakeoverMS)*time.Millisecond, limit)
	switch lost := words.Duration(o.LostInMS); {
	case lost == 0:
		say("lost", "it no longer trusts the lock, with the default margin")
	case lost > 0:
		say("lost", "in %s it stops trusting the lock, if it is only cut off, with the default "+
			"margin", words.Age(lost))
	}
	by := map[string]string{
		"witnesses": "by a contender that reads it meanwhile, if all clocks agree",
		"lease": "by a contender that reads it meanwhile, if all clocks agree; the process is not " +
			"declared dead",
		"watch": "by a contender that saw it silent for the whole takeover time",
	}
	if o.watched >= 0 {
		by["witnesses"] = "by a waiter that has watched it, if all clocks agree"
		by["watch"] = "by a waiter that has then watched it for the whole takeover time"
	}
	say("taken", "in %s at the earliest, %s", words.Age(words.Duration(o.EarliestMS)), by[o.Rule])
	say("", "in %s by a contender that first reads it now, independent of clocks",
		words.Age(words.Duration(o.LatestMS)))
	return all
}
