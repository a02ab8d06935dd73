package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"mongodlm/distlock"
)

// An outlook says what would become of a holder's lock if the holder fell silent now. Its times count from the
// reading, by the server's clock.
type outlook struct {
	Process string `json:"process"`
	// Rule is the one by which a contender takes the lock: "condemned", "lease", "witnesses" or "watch", as in package
	// takeover; "never" when none does.
	Rule       string `json:"rule"`
	TakeoverMS int64  `json:"takeoverMS"` // the life of its lease where that is the rule
	// LostInMS is when the holder itself gives the lock up, if it lives and has the default margin; null when unknown.
	LostInMS *int64 `json:"lostInMS"`
	// EarliestMS is when a contender that looks now and again may take it, LatestMS when one may that has its first look
	// now, whatever clocks say; null when it never may.
	EarliestMS *int64 `json:"takenInMS"`
	LatestMS   *int64 `json:"takenAtTheLatestInMS"`
	Others     int    `json:"others"` // how many hold it as well
	Next       string `json:"next"`   // the process that is next in line; empty when nobody waits

	pulse string        // what is watched, empty when there is nothing
	age   time.Duration // of that; negative when unknown
}

// What a holder and a contender take when nothing else is recorded: three intervals are watched at least, and a
// quarter of the takeover time is the margin.
const (
	watchedIntervals = 3
	marginShare      = 4
)

// foresee computes the outlook by the rules of package takeover.
//
// others is how many hold the lock beside h.
func foresee(h distlock.LockInfo, others int, line []distlock.LockInfo) outlook {
	takeover := cmp.Or(h.Takeover, defaultTakeover)
	least := watchedIntervals * cmp.Or(h.PingEvery, defaultPing)
	o := outlook{Process: h.Process, Rule: "witnesses", Others: others, pulse: "ping", age: h.PingAge}
	if !h.HasPing {
		o.pulse = ""
	}
	if len(line) > 0 {
		o.Next = line[0].Process
	}
	switch {
	case h.BadPing != nil:
		o.Rule = "never"
	case h.Condemned && !h.Foreign:
		o.Rule = "condemned"
	case h.Foreign, !h.HasPing, h.PingAge < 0: // whose clocks bear no witness, or are not known here
		o.Rule = "watch"
	case h.Lease > 0 && h.Lease-h.LeaseAge < takeover-h.PingAge:
		o.Rule, o.pulse, o.age, takeover = "lease", "renewal", h.LeaseAge, h.Lease
	}
	if h.Foreign {
		takeover = max(takeover, defaultTakeover)
	}
	o.TakeoverMS = takeover.Milliseconds()
	in := func(d time.Duration) *int64 { return milliseconds(max(0, d)) }
	switch {
	case o.Rule == "never":
	case o.Rule == "condemned":
		o.LostInMS, o.EarliestMS, o.LatestMS = in(0), in(0), in(0)
	case o.Rule == "watch" && (o.age < 0 || o.age >= takeover):
		o.EarliestMS, o.LatestMS = in(0), in(takeover) // who knows how long others have looked
	default:
		o.EarliestMS, o.LatestMS = in(takeover-o.age), in(takeover)
		if o.age >= takeover {
			o.EarliestMS = in(min(least, takeover))
		}
		if !h.Foreign {
			o.LostInMS = in(takeover - takeover/marginShare - o.age)
		}
	}
	return o
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
	say("evidence", "%s; %v is the takeover time", evidence, time.Duration(o.TakeoverMS)*time.Millisecond)
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
	say("", "in %s by one that looks for the first time now, whatever clocks say", age(duration(o.LatestMS)))
}
