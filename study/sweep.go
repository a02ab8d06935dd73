package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// A Sweep increases one knob of a case step by step. For each generation it finds the value from
// which the lock fails.
type Sweep struct {
	Name, Title string
	Case        string
	Set         []string // further settings
	Knob        string   // setting of the knob; %s is the length
	Most        time.Duration
	breaks      func(Outcome) bool
	Breaks      string // name of the failure
	// Edges maps a generation to the value from which it breaks. Generations that never break are
	// missing.
	Edges map[string]Edge
}

// An Edge is the value from which a generation breaks.
type Edge struct {
	From time.Duration
	Why  string // the constants in the source
}

// Sweeps returns all sweeps.
func Sweeps() []Sweep {
	const (
		truncated = ", compared with > after truncation to minutes: "
		minutes10 = "takeoverMinutes = 10 (r1.7.5 client/distlock.h:47)" + truncated + "11 minutes"
		minutes15 = "takeoverMinutes = 15 (r1.8.5 client/distlock.h:47)" + truncated + "16 minutes"
		timeout   = "LOCK_TIMEOUT = 15 minutes (r2.0.9 client/distlock.h:26)"
		kept      = "kDistLockExpirationTime = 15 minutes (r3.2.22 replset_dist_lock_manager.cpp:68)"
		ping      = ", less the 30 seconds between two pings"
		skew      = "LOCK_TIMEOUT / LOCK_SKEW_FACTOR = 30 seconds (r2.0.9 client/distlock.cpp:304, 444)"
		breaks    = "two processes hold the lock"
	)
	twoHold := func(o Outcome) bool { return o.Two > time.Second } // longer than a request
	none := func(o Outcome) bool { return o.None }
	old := map[string]Edge{"1.6": {10*m + 30*s, minutes10 + ping},
		"1.8": {15*m + 30*s, minutes15 + ping}}
	every := []string{"B.tries=1s"}
	return []Sweep{
		{"pause", "how long the holder is frozen after a ping", "pause", every,
			"A.pause=%s@4m500ms", 20 * m, twoHold, breaks, map[string]Edge{"1.6": {11 * m, minutes10},
				"1.8": {16 * m, minutes15}, "2.0": {15 * m, timeout}, "2.6": {15 * m, timeout},
				"3.2": {15 * m, kept}}},
		{"clock", "how far the contender's clock is ahead", "clock-ahead", every, "B.clock=%s",
			20 * m, twoHold, breaks, old},
		{"clock-behind", "how far the contender's clock is behind", "clock-ahead", every,
			"B.clock=-%s", 20 * m, twoHold, breaks, map[string]Edge{"1.6": {0, "the subtraction is " +
				"unsigned (r1.6.5 client/distlock.cpp:138), so any ping in the future counts as very old"}}},
		{"server-clock", "how far the server's clock steps ahead between two pings",
			"server-clock-steps", nil, "server.clock=%s@10m10s", 20 * m, twoHold, breaks,
			map[string]Edge{"2.0": {14*m + 30*s, timeout + ping}, "2.6": {14*m + 30*s, timeout + ping},
				"3.2": {14*m + 30*s, kept + ping}}},
		{"delay", "how late one ping of the holder arrives (from 2.0.1 on the ping times out after 30s)",
			"clock-ahead", append(every, "B.clock=0s"), "A.late=ping#7:%s", 20 * m, twoHold, breaks,
			old},
		{"skew", "how far one config server's clock is ahead", "config-clocks-apart", nil,
			"mirror.clock=%s", 2 * m, none, "no process gets the lock",
			map[string]Edge{"2.0": {30 * s, skew}, "2.6": {30 * s, skew}}},
	}
}

// FindSweeps returns the sweep with the given name. If no sweep has this name, the error lists all
// names.
func FindSweeps(name string) ([]Sweep, error) {
	var names []string
	for _, one := range Sweeps() {
		if one.Name == name {
			return []Sweep{one}, nil
		}
		names = append(names, one.Name)
	}
	return nil, fmt.Errorf("there is no sweep %.60q; the sweeps are %s", name,
		strings.Join(names, ", "))
}

// Settings returns the settings of the case, with the given value of the knob.
func (sw Sweep) Settings(far string) []string {
	return append(slices.Clone(sw.Set), fmt.Sprintf(sw.Knob, far))
}

// At plays the case with the given value of the knob, and reports whether the generation breaks. If
// the generation cannot play the case, the second result is the reason. Otherwise the second result
// is empty.
func (sw Sweep) At(g Generation, far time.Duration) (broken bool, not string) {
	found, _ := FindCases(sw.Case)
	c, err := found[0].With(sw.Settings(Span(far))...)
	if err != nil {
		panic("study: " + err.Error())
	}
	o := player(c, g).Outcome
	return sw.breaks(o), o.Not
}

// Run finds the smallest value, in whole seconds, that breaks a generation. It assumes that all
// larger values also break it. It returns the result in words, with the command line that
// reproduces it. If ctx ends, Run returns the cause.
func (sw Sweep) Run(ctx context.Context, g Generation) (text string, err error) {
	not := ""
	first := sort.Search(int(sw.Most/s)+1, func(i int) (broken bool) {
		broken, not = sw.At(g, time.Duration(i)*s)
		return broken || not != "" || ctx.Err() != nil
	})
	switch from := time.Duration(first) * s; {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case not != "":
		return "not possible here: " + not, nil
	case from > sw.Most:
		return "never, up to " + Span(sw.Most), nil
	default:
		far, why := Span(from), sw.Edges[g.Name].Why
		if why != "" {
			why = ": " + why
		}
		return fmt.Sprintf("%s from %s on%s. go run ./study %s --generation %s --set %s", sw.Breaks, far,
			why, sw.Case, g.Name, strings.Join(sw.Settings(far), " --set ")), nil
	}
}
