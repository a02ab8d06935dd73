// Package outlook says what is to come of a held lock: when its holder would lose it and when
// another could take it, asked of package takeover, who that would be, and all that in words for
// the command line and the page.
package outlook

import (
	"cmp"
	"fmt"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/takeover"
)

// An Outlook says what would become of a holder's lock if the holder fell silent now. Its times
// count from the reading, by the server's clock.
type Outlook struct {
	Process string `json:"process"`
	// Rule is the one by which a contender takes the lock: "condemned", "lease", "witnesses" or
	// "watch", as in package takeover; "never" when none does.
	Rule       string `json:"rule"`
	TakeoverMS int64  `json:"takeoverMS"` // the life of its lease where that is the rule
	// LostInMS is when the holder itself gives the lock up, if it lives and has the default margin;
	// null when unknown.
	LostInMS *int64 `json:"lostInMS"`
	// EarliestMS is when a contender that looks now and again may take it, LatestMS when one may
	// that has its first look now, whatever clocks say; null when it never may.
	EarliestMS *int64 `json:"takenInMS"`
	LatestMS   *int64 `json:"takenAtTheLatestInMS"`
	Others     int    `json:"others"` // how many hold it as well
	// Next is the process that would be next: the first in line but for the dead, of which Passed
	// are before it. Empty when nobody else waits.
	Next   string `json:"next"`
	Passed int    `json:"passedOver"`

	pulse string        // what is watched, empty when there is nothing
	age   time.Duration // of that; negative when unknown
	// watched is how long a waiter has looked at it; negative when nobody is known to.
	watched time.Duration
	late    bool // it has missed two pings: the times are those of a takeover that is under way
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// duration is a number of milliseconds; negative when it is unknown.
func duration(ms *int64) time.Duration {
	if ms == nil {
		return -1
	}
	return time.Duration(*ms) * time.Millisecond
}

// marginShare is the part of the takeover time that is a holder's margin by default.
const marginShare = 4

// Foresee asks package takeover what a contender would decide if the holder fell silent now.
//
// others is how many hold the lock beside h. Those in line who are dead, or would die with h, watch
// nothing and are granted nothing.
func Foresee(h distlock.LockInfo, others int, line []distlock.LockInfo) Outlook {
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
	for _, w := range line {
		if w.Process != h.Process && w.HasPing && w.BadPing == nil && !w.Gone() && h.PingAge >= 0 {
			o.watched = max(o.watched, min(w.Age, h.PingAge))
		}
	}
	if !h.HasPing {
		o.pulse = ""
	}
	o.ask(e, p)
	if h.Lease > 0 && h.LeaseAge >= 0 && o.EarliestMS != nil {
		by := Outlook{pulse: "renewal", age: h.LeaseAge, watched: min(o.watched, h.LeaseAge)}
		by.ask(takeover.Evidence{Held: true, Process: h.Process, Lease: true, HasPing: true,
			HasSeq: true}, p.OfLease(h.Lease))
		if *by.EarliestMS < *o.EarliestMS {
			by.Rule = "lease"
			o = by
		}
	}
	o.Process, o.Others, o.late = h.Process, others, h.Gone() || h.Lease > 0 && h.LeaseAge > h.Lease
	for _, w := range line {
		if !w.Gone() && (w.Process != h.Process || o.Rule == "lease") {
			o.Next = w.Process
			return o
		}
		o.Passed++
	}
	return o
}

// soonest asks when a waiter that has watched for so long may take the lock: at which of the times
// that the rules know of they say so first.
func (o *Outlook) soonest(e takeover.Evidence, p takeover.Policy,
	whole time.Duration) (time.Duration, string) {
	look := func(at time.Duration) takeover.Evidence {
		e := e
		e.Ping, e.Local = time.Unix(0, 0), time.Unix(0, 0)
		e.Server = e.Ping.Add(o.age + at)
		e.Wall, e.Sent, e.Received = e.Server, o.watched+at, o.watched+at
		return e
	}
	first := look(-o.watched)
	whenOld := max(0, whole-o.age)
	// of the shorter rule, once the ping is old
	seen := takeover.Decide(first, look(whenOld), p).Remaining
	for _, at := range []time.Duration{0, whenOld, whenOld + seen} {
		if d := takeover.Decide(first, look(at), p); d.Verdict == takeover.Take {
			return at, d.Rule
		}
	}
	return max(0, whole-o.watched), "watch"
}

// ask fills in the rule and the times: e is what the holder has left, but for clocks, and p the
// policy of a contender.
func (o *Outlook) ask(e takeover.Evidence, p takeover.Policy) {
	p.Rule = takeover.WatchOnly
	whole, earliest := takeover.Decide(e, e, p).Remaining, time.Duration(0)
	if o.age >= 0 { // else who knows how long others have looked
		earliest = max(0, whole-o.age)
		e.Ping, e.Local = time.Unix(0, 0), time.Unix(0, 0)
		e.Server = e.Ping.Add(o.age + earliest)
		e.Wall = e.Server
	}
	p.Rule = takeover.Witnesses
	o.TakeoverMS, o.Rule = cmp.Or(whole, p.Takeover).Milliseconds(), "watch"
	switch d := takeover.Decide(e, e, p); {
	case d.Verdict == takeover.Malformed:
		o.Rule = "never"
		return
	case d.Verdict == takeover.Take: // it is condemned
		o.Rule = d.Rule
	case d.Remaining < whole:
		if o.Rule = "witnesses"; earliest == 0 {
			earliest = d.Remaining
		}
	}
	if o.watched >= 0 && o.age >= 0 && o.Rule != "condemned" {
		earliest, o.Rule = o.soonest(e, p, whole)
	}
	o.EarliestMS, o.LatestMS = milliseconds(earliest), milliseconds(whole)
	if o.age >= 0 && !e.Foreign() {
		o.LostInMS = milliseconds(max(0, whole-whole/marginShare-o.age))
	}
}

// A Line is one thing that there is to say: what it is of, and the sentence.
type Line struct{ What, Text string }

// Lines say all of it, under the assumption that the holder dies now; processes are named as name
// does.
func (o Outlook) Lines(name func(process string) string) []Line {
	switch o.Rule {
	case "never":
		return []Line{{"taken", "never: its ping cannot be understood"}}
	case "condemned":
		return []Line{{"taken", "at once: a contender has declared it dead"}, {"then", o.then(name)}}
	}
	return append(o.times(), Line{"then", o.then(name)})
}

// then says who has the lock after it.
func (o Outlook) then(name func(process string) string) string {
	next := name(o.Next)
	if o.Passed > 0 && o.Next != "" {
		next += fmt.Sprintf(" (the %d before it in line are dead, or would die with the holder)",
			o.Passed)
	}
	switch {
	case o.Next == "" && o.Passed > 0:
		return fmt.Sprintf("whoever asks first has it: the %d in line are dead, or would die "+
			"with the holder", o.Passed)
	case o.Next == "" && o.Others == 0:
		return "whoever asks first has it; nobody waits"
	case o.Next == "":
		return fmt.Sprintf("it is held still, by %d more; nobody waits", o.Others)
	case o.Others == 0:
		return "the next in line has it: " + next
	}
	return fmt.Sprintf("it is held still, by %d more; %s has it when there is room", o.Others, next)
}

// limit words what TakeoverMS is.
func (o Outlook) limit() string {
	if o.Rule == "lease" {
		return "life of its lease"
	}
	return "takeover time"
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
		evidence = "how old its ping is cannot be told without the server's clock"
	}
	say("evidence", "%s; %v is the %s", evidence, time.Duration(o.TakeoverMS)*time.Millisecond,
		o.limit())
	switch lost := duration(o.LostInMS); {
	case lost == 0:
		say("lost", "it trusts the lock no more, by the default margin")
	case lost > 0:
		say("lost", "in %s: then it trusts the lock no more, if it is only cut off, by the "+
			"default margin", words.Age(lost))
	}
	by := map[string]string{
		"witnesses": "by a contender that looks meanwhile, if all clocks agree",
		"lease": "by a contender that looks meanwhile, if all clocks agree; the process is not " +
			"declared dead",
		"watch": "by a contender that has seen it silent for the whole takeover time",
	}
	if o.watched >= 0 {
		by["witnesses"] = "by who is in line and has watched it, if all clocks agree"
		by["watch"] = "by who is in line and has watched it for the whole takeover time by then"
	}
	say("taken", "in %s at the earliest, %s", words.Age(duration(o.EarliestMS)), by[o.Rule])
	say("", "in %s by one that looks for the first time now, whatever clocks say",
		words.Age(duration(o.LatestMS)))
	return all
}

// Sentence is the whole of it in one sentence, for whoever looks at a lock in trouble.
func (o Outlook) Sentence(name func(process string) string) string {
	takeover := fmt.Sprintf("The %s is %v; ", o.limit(), time.Duration(o.TakeoverMS)*time.Millisecond)
	soon := "in about " + words.Age(duration(o.EarliestMS))
	if duration(o.EarliestMS) < time.Second {
		soon = "at any moment"
	}
	switch {
	case o.Rule == "never":
		return "It is never taken: the holder's ping cannot be understood."
	case o.Rule == "condemned" && o.Next == "":
		return "Its holder is declared dead: " + o.then(name) + "."
	case o.Rule == "condemned":
		return "It will be taken at once, its holder is declared dead: " + o.then(name) + "."
	case o.late && o.Next != "":
		return "It will be taken " + soon + ". " + takeover + o.then(name) + "."
	case o.late || o.pulse == "" || o.age < 0:
		return "It can be taken " + soon + ". " + takeover + o.then(name) + "."
	}
	return "Its holder pings. If that died now, it would be taken " + soon + ". " + takeover +
		o.then(name) + "."
}
