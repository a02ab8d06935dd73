package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"mongodlm/distlock"
	"mongodlm/takeover"
)

// An outlook says what would become of a holder's lock if the holder fell silent now. Its times
// count from the reading, by the server's clock.
type outlook struct {
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
	Next       string `json:"next"`   // the process that is next in line; empty when nobody waits

	pulse string        // what is watched, empty when there is nothing
	age   time.Duration // of that; negative when unknown
}

// marginShare is the part of the takeover time that is a holder's margin by default.
const marginShare = 4

// foresee asks package takeover what a contender would decide if the holder fell silent now.
//
// others is how many hold the lock beside h.
func foresee(h distlock.LockInfo, others int, line []distlock.LockInfo) outlook {
	e := takeover.Evidence{Held: true, Process: h.Process, Recorded: h.Takeover, HasPing: h.HasPing, HasSeq: !h.Foreign,
		PingInterval: h.PingEvery}
	if h.BadPing != nil {
		e.Malformed = h.BadPing.Error()
	}
	if h.Condemned {
		e.Condemned = "marked"
	}
	p := takeover.Policy{Takeover: cmp.Or(h.Takeover, defaultTakeover), ForeignTakeover: defaultTakeover,
		PingInterval: defaultPing, MaxGap: defaultTakeover}
	o := outlook{pulse: "ping", age: h.PingAge}
	if !h.HasPing {
		o.pulse = ""
	}
	o.ask(e, p)
	if h.Lease > 0 && h.LeaseAge >= 0 && o.EarliestMS != nil {
		by := outlook{pulse: "renewal", age: h.LeaseAge}
		by.ask(takeover.Evidence{Held: true, Process: h.Process, Lease: true, HasPing: true, HasSeq: true}, p.OfLease(h.Lease))
		if *by.EarliestMS < *o.EarliestMS {
			by.Rule = "lease"
			o = by
		}
	}
	o.Process, o.Others = h.Process, others
	if len(line) > 0 {
		o.Next = line[0].Process
	}
	return o
}

// ask fills in the rule and the times: e is what the holder has left, but for clocks, and p the
// policy of a contender.
func (o *outlook) ask(e takeover.Evidence, p takeover.Policy) {
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
	o.EarliestMS, o.LatestMS = milliseconds(earliest), milliseconds(whole)
	if o.age >= 0 && !e.Foreign() {
		o.LostInMS = milliseconds(max(0, whole-whole/marginShare-o.age))
	}
}

// print writes the outlook for a person, naming the holder where there are several.
func (o outlook) print(w io.Writer, how layout, several bool) {
	who := "its holder"
	if several {
		who = shown(short(o.Process), 100)
	}
	fmt.Fprintf(w, "if %s died now\n", who)
	say := func(what, format string, args ...any) {
		const indent = "             "
		wrap(w, how, fmt.Sprintf("  %-9s  %s", what, fmt.Sprintf(format, args...)), indent)
	}
	switch o.Rule {
	case "never":
		say("taken", "never: its ping cannot be understood")
		return
	case "condemned":
		say("taken", "at once: a contender has declared it dead")
	default:
		o.sayTimes(say)
	}
	next := how.process(o.Next)
	switch {
	case o.Next == "" && o.Others == 0:
		say("then", "whoever asks first has it; nobody waits")
	case o.Next == "":
		say("then", "it is held still, by %d more; nobody waits", o.Others)
	case o.Others == 0:
		say("then", "the next in line has it: %s", next)
	default:
		say("then", "it is held still, by %d more; %s has it when there is room", o.Others, next)
	}
}

func (o outlook) sayTimes(say func(what, format string, args ...any)) {
	evidence := fmt.Sprintf("the last %s is %s old", o.pulse, age(o.age))
	switch {
	case o.pulse == "":
		evidence = "there is no ping"
	case o.age < 0:
		evidence = "how old its ping is cannot be told without the server's clock"
	}
	say("evidence", "%s; %v is the takeover time", evidence,
		time.Duration(o.TakeoverMS)*time.Millisecond)
	switch lost := duration(o.LostInMS); {
	case lost == 0:
		say("lost", "it trusts the lock no more, by the default margin")
	case lost > 0:
		say("lost", "in %s: then it trusts the lock no more, if it is only cut off, by the default margin", age(lost))
	}
	by := map[string]string{
		"witnesses": "by a contender that looks meanwhile, if all clocks agree",
		"lease":     "by a contender that looks meanwhile, if all clocks agree; the process is not declared dead",
		"watch":     "by a contender that has seen it silent for the whole takeover time",
	}
	say("taken", "in %s at the earliest, %s", age(duration(o.EarliestMS)), by[o.Rule])
	say("", "in %s by one that looks for the first time now, whatever clocks say",
		age(duration(o.LatestMS)))
}
