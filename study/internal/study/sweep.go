package study

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Sweep turns one knob of a case further and further, and finds from where on a generation
// breaks.
type Sweep struct {
	Name, Title string
	Case        string
	Set         []string // knobs that it sets differently from the case
	Knob        string
	form        string // of its value, with the length as %s
	Most        time.Duration
	breaks      func(Outcome) bool
	Breaks      string // in a word
	// Edges are where generations break by the constants of their sources; the rest never does.
	Edges map[string]Edge
}

// An Edge is from where on a generation breaks.
type Edge struct {
	From time.Duration
	Why  string // the constants
}

// twoHold is true of an outcome with two holders, but for the time of a question.
func twoHold(o Outcome) bool { return o.Two > time.Second }

// Sweeps returns all sweeps.
func Sweeps() []Sweep {
	const (
		minutes10 = "takeoverMinutes = 10 (r1.7.5 client/distlock.h:47), cut off before > : 11 minutes"
		minutes15 = "takeoverMinutes = 15 (r1.8.5 client/distlock.h:47), cut off before > : 16 minutes"
		timeout   = "LOCK_TIMEOUT = 15 minutes (r2.0.9 client/distlock.h:26)"
		kept      = "kDistLockExpirationTime = 15 minutes (r3.2.22 replset_dist_lock_manager.cpp:68)"
		ping      = ", less the 30 seconds between two pings"
		skew      = "LOCK_TIMEOUT / LOCK_SKEW_FACTOR = 30 seconds (r2.0.9 client/distlock.cpp:304, 444)"
	)
	two := Sweep{Most: 20 * m, breaks: twoHold, Breaks: "two hold the lock"}
	of := func(s Sweep) Sweep {
		s.Most, s.breaks, s.Breaks = two.Most, two.breaks, two.Breaks
		return s
	}
	apart := of(Sweep{Name: "skew", Title: "how far one config server's clock is ahead",
		Case: "config-clocks-apart", Knob: "mirror.clock", form: "%s",
		Edges: map[string]Edge{"2.0": {30 * s, skew}, "2.6": {30 * s, skew}}})
	apart.Most, apart.breaks, apart.Breaks = 2*m, func(o Outcome) bool { return o.None },
		"no process gets the lock"
	return []Sweep{
		of(Sweep{Name: "pause", Title: "for how long the holder is frozen, after a ping",
			Case: "pause", Set: []string{"B.tries=1s"}, Knob: "A.pause", form: "%s@4m500ms",
			Edges: map[string]Edge{
				"1.6": {11 * m, minutes10}, "1.8": {16 * m, minutes15}, "2.0": {15 * m, timeout},
				"2.6": {15 * m, timeout},
				"3.2": {15 * m, kept}}}),
		of(Sweep{Name: "clock", Title: "how far the contender's clock is ahead", Case: "clock-ahead",
			Set: []string{"B.tries=1s"}, Knob: "B.clock", form: "%s", Edges: map[string]Edge{
				"1.6": {10*m + 30*s, minutes10 + ping}, "1.8": {15*m + 30*s, minutes15 + ping}}}),
		of(Sweep{Name: "clock-behind", Title: "how far the contender's clock is behind",
			Case: "clock-ahead", Set: []string{"B.tries=1s"}, Knob: "B.clock", form: "-%s",
			Edges: map[string]Edge{
				"1.6": {0, "the subtraction has no sign (r1.6.5 client/distlock.cpp:138), so any ping of " +
					"the future is ancient"}}}),
		of(Sweep{Name: "server-clock", Title: "how far the server's clock steps ahead between two pings",
			Case: "server-clock-steps", Knob: "server.clock", form: "%s@10m10s", Edges: map[string]Edge{
				"2.0": {14*m + 30*s, timeout + ping}, "2.6": {14*m + 30*s, timeout + ping},
				"3.2": {14*m + 30*s, kept + ping}}}),
		of(Sweep{Name: "delay", Title: "how late one ping of the holder is (from 2.0.1 on it is given " +
			"up after 30s)", Case: "clock-ahead", Set: []string{"B.clock=0s", "B.tries=1s"}, Knob: "A.late",
			form: "ping#7:%s", Edges: map[string]Edge{
				"1.6": {10*m + 30*s, minutes10 + ping}, "1.8": {15*m + 30*s, minutes15 + ping}}}),
		apart,
	}
}

// FindSweep returns the sweep of a name; all names are near.
func FindSweep(name string) (sweep Sweep, names []string, ok bool) {
	for _, one := range Sweeps() {
		if one.Name == name {
			return one, nil, true
		}
		names = append(names, one.Name)
	}
	return Sweep{}, names, false
}

// Settings are the knobs of the sweep, with its own turned so far.
func (sw Sweep) Settings(far time.Duration) []string {
	own := sw.Knob + "=" + fmt.Sprintf(sw.form, short(far))
	return append(slices.Clone(sw.Set), own)
}

// A Swept is the result of a sweep for one generation.
type Swept struct {
	Generation string
	Not        string        // why it cannot be played
	Broken     bool          // it breaks somewhere
	From       time.Duration // the first that breaks, to the second
}

// Describe is the finding in words, with the command that plays it.
func (found Swept) Describe(sw Sweep) string {
	command := ""
	if found.Broken {
		command = fmt.Sprintf(". go run ./study %s --generation %s --set %s", sw.Case, found.Generation,
			strings.Join(sw.Settings(found.From), " --set "))
	}
	switch why := sw.Edges[found.Generation].Why; {
	case found.Not != "":
		return "not possible here: " + found.Not
	case !found.Broken:
		return "never, up to " + short(sw.Most)
	case why != "":
		return fmt.Sprintf("%s from %s on: %s%s", sw.Breaks, short(found.From), why, command)
	}
	return fmt.Sprintf("%s from %s on%s", sw.Breaks, short(found.From), command)
}

// At plays the case of the sweep with its knob turned so far, and reports whether the generation
// breaks.
func (sw Sweep) At(g Generation, far time.Duration) (broken bool, not string, err error) {
	found, _ := FindCases(sw.Case)
	c := found[0]
	if c, err = c.With(sw.Settings(far)...); err != nil {
		return false, "", err
	}
	c.unseen = true
	o := play(c, g).Outcome
	return sw.breaks(o), o.Not, nil
}

// Run finds where a generation breaks: it turns the knob in eight steps, and then halves the step
// in which it broke first.
func (sw Sweep) Run(ctx context.Context, g Generation) (found Swept, err error) {
	found.Generation = g.Name
	at := func(far time.Duration) bool {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return true
		}
		var broken bool
		broken, found.Not, err = sw.At(g, far)
		return broken || found.Not != ""
	}
	const steps = 8
	good, bad := time.Duration(-1), sw.Most
	for i := range steps + 1 {
		if bad = sw.Most * time.Duration(i) / steps; at(bad) {
			found.Broken = found.Not == ""
			break
		}
		good = bad
	}
	for found.Broken && good >= 0 && bad-good > time.Second {
		if middle := ((good + bad) / 2).Round(time.Second); at(middle) {
			bad = middle
		} else {
			good = middle
		}
	}
	found.From = bad
	return found, err
}
