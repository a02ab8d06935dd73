package study

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A Search puts random accidents into the case quiet until a generation breaks. No more than one
// clock is wrong at a time, since no lock promises more. What it does hangs on Seed only.
type Search struct {
	Seed  uint64
	Plays int // that it tries at most
}

// A Finding is what a search has come to.
type Finding struct {
	Generation string
	Plays      int           // that were tried
	Simulated  time.Duration // time in them
	Accidents  int           // in them
	Drawn      []string      // the settings that broke it, as they were drawn; nil: none did
	Set        []string      // and the fewest and smallest to which they were reduced
	Outcome    Outcome       // of them
}

// breaks reports whether a generation failed: two held the lock for longer than a question takes,
// or a stale write went in. Of ours no instant is forgiven, not even that of one who stands still.
func breaks(g Generation, o Outcome) bool {
	if g.Name == Ours {
		return o.TwoTrusted > 0 || o.Stale > 0
	}
	return twoHold(o) || o.Stale > 0
}

// Run searches. When ctx ends it returns what it has come to, and the cause.
func (se Search) Run(ctx context.Context, g Generation) (f Finding, err error) {
	f.Generation = g.Name
	size := 2 * runtime.GOMAXPROCS(0)
	for f.Plays < se.Plays {
		drawn := make([][]string, min(size, se.Plays-f.Plays))
		for i := range drawn {
			drawn[i] = draw(se.Seed, f.Plays+i, g)
		}
		plays, err := several(ctx, g, drawn...)
		if err != nil {
			return f, err
		}
		for i, p := range plays {
			f.Plays++
			f.Simulated += p.Length
			f.Accidents += len(drawn[i])
			if breaks(g, p.Outcome) {
				f.Drawn, f.Set, f.Outcome = drawn[i], drawn[i], p.Outcome
				return f, f.reduce(ctx, g)
			}
		}
	}
	return f, nil
}

// several plays schedules; only their outcomes are of interest.
func several(ctx context.Context, g Generation, schedules ...[]string) ([]Play, error) {
	var cases []Case
	for _, settings := range schedules {
		c, err := Quiet().With(settings...)
		if err != nil {
			panic("study: the search has drawn " + err.Error())
		}
		c.unseen = true
		cases = append(cases, c)
	}
	return Run(ctx, cases, []Generation{g})
}

// draw draws the i-th schedule of a seed: two to six accidents, in the beginning every second time
// one.
func draw(seed uint64, i int, g Generation) (settings []string) {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	count := 2 + r.IntN(5)
	if i < 400 && i%2 == 0 {
		count = 1
	}
	clocks := 0
	for len(settings) < count {
		text, clock := accidentOf(r, g)
		if clock {
			if clocks++; clocks > 1 {
				continue
			}
		}
		settings = append(settings, text)
	}
	return settings
}

// span draws a length of time: short ones as often as long ones, by their logarithms.
func span(r *rand.Rand, least, most time.Duration) string {
	d := time.Duration(float64(least) * math.Pow(float64(most)/float64(least), r.Float64()))
	if d > 10*s {
		return short(d.Round(time.Second))
	}
	return short(d.Round(ms))
}

// accidentOf draws one accident, and says whether it is that of a clock.
func accidentOf(r *rand.Rand, g Generation) (text string, clock bool) {
	who := string(rune('A' + r.IntN(3)))
	at := "@" + short(time.Duration(r.IntN(2400))*s)
	if at == "@0s" {
		at = "@1s" // nobody dies before it starts
	}
	sign := []string{"", "-"}[r.IntN(2)]
	command := func() string {
		kinds := []Kind{Ping, Ping, Read, Insert, Grab, Finalize, Sight, Take, Release, Reread, Clock,
			Write, Ask}
		kind := kinds[r.IntN(len(kinds))]
		return fmt.Sprintf("%s#%d", kind.word(), 1+int(math.Pow(80, r.Float64())))
	}
	switch r.IntN(12) {
	case 0, 1:
		return who + ".pause=" + span(r, s, 25*m) + at, false
	case 2, 3:
		return who + ".cut=" + span(r, s, 25*m) + at, false
	case 4:
		return who + ".dies=" + at[1:], false
	case 5, 6:
		return who + ".late=" + command() + ":" + span(r, 100*ms, 25*m), false
	case 7:
		return who + ".lost=" + command(), false
	case 8:
		return "outage=" + span(r, s, 25*m) + at, false
	case 9:
		if g.replicaSet {
			return "election=0s" + at, false
		}
		return who + ".lost=" + command(), false
	case 10:
		return who + ".clock=" + sign + span(r, s, 10*24*h), true
	default:
		if r.IntN(2) == 0 {
			return who + ".step=" + sign + span(r, s, 24*h) + at, true
		}
		return "server.clock=" + sign + span(r, s, 24*h) + at, true
	}
}

// reduce leaves out what is not needed to break the generation, and makes smaller and rounder what
// is.
func (f *Finding) reduce(ctx context.Context, g Generation) (err error) {
	try := func(settings []string) bool {
		if _, wrong := Quiet().With(settings...); wrong != nil || err != nil {
			return false
		}
		var plays []Play
		if plays, err = several(ctx, g, settings); err != nil || !breaks(g, plays[0].Outcome) {
			return false
		}
		f.Set, f.Outcome = settings, plays[0].Outcome
		return true
	}
	for again := true; again && err == nil; {
		again = false
		for i := 0; i < len(f.Set); {
			if len(f.Set) > 1 && try(slices.Delete(slices.Clone(f.Set), i, i+1)) {
				again = true
				continue
			}
			for _, smaller := range smaller(f.Set[i]) {
				next := slices.Clone(f.Set)
				next[i] = smaller
				if try(next) {
					again = true
					break
				}
			}
			i++
		}
	}
	return err
}

// smaller returns a setting with its times made smaller or rounder.
func smaller(setting string) (all []string) {
	name, value, _ := strings.Cut(setting, "=")
	front, length := "", value
	if command, rest, of := strings.Cut(value, ":"); of {
		front, length = command+":", rest
	}
	length, at, timed := strings.Cut(length, "@")
	d, err := time.ParseDuration(length)
	if err != nil {
		return nil // a command: it has no time
	}
	add := func(d time.Duration, at string) {
		text := name + "=" + front + short(d)
		if timed {
			text += "@" + at
		}
		if text != setting && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	add(d/2, at)
	add((d * 3 / 4).Round(ms), at)
	for _, unit := range []time.Duration{h, m, s} {
		up := unit
		if d < 0 {
			up = -unit
		}
		if down := d.Truncate(unit); down != d {
			add(down, at)
			if next := down + up; (next-d).Abs()*10 < d.Abs() {
				add(next, at)
			}
		}
	}
	if instant, err := time.ParseDuration(at); err == nil {
		add(d, short(instant.Truncate(m)))
	}
	return all
}
