package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A dial is a kind of knob. Its function applies a setting of the knob.
type dial struct {
	name, form  string
	least, most time.Duration
	do          func(*world, turn)
}

// Formats of the value of a setting, as error messages show them.
const (
	lengthForm  = "LENGTH, such as 14m"
	stretchForm = "LENGTH[@TIME], such as 14m@2m10s"
	instantForm = "TIME since 12:00, such as 5m"
	delayForm   = "COMMAND[#N]:LENGTH, such as take-over:2s or ping#3:10m, or none"
	commandForm = "COMMAND[#N], such as grab or release#2, or none"
	wordForm    = "a word"
)

const (
	longest = 2 * h        // longest duration
	widest  = 366 * 24 * h // largest error of a clock
)

// dialsOf lists the knobs of each process. dialsAll lists the knobs that all processes share.
var (
	dialsOf = []dial{
		{"clock", lengthForm, -widest, widest,
			func(_ *world, t turn) { t.p.Clock.Step(t.d) }},
		{"step", stretchForm, -widest, widest, func(w *world, t turn) {
			w.happens(t, "clock step", "its clock steps by "+signed(t.d),
				func() { t.p.Clock.Step(t.d) })
		}},
		{"pause", stretchForm, 0, longest, (*world).pauses},
		{"cut", stretchForm, 0, longest, (*world).cutOff},
		{"dies", instantForm, 1, longest,
			func(w *world, t turn) { w.At(t.at, -1, t.p.die) }},
		{"late", delayForm, 0, longest, (*world).strikes},
		{"lost", commandForm, 0, 0, (*world).strikes},
		{"tries", lengthForm, 100 * ms, longest,
			func(_ *world, t turn) { t.p.pace = t.d }},
	}
	dialsAll = []dial{
		{"takeover", lengthForm, 2 * m, longest,
			func(w *world, t turn) { w.takeover = t.d }},
		{"latency", lengthForm, 1 * ms, 2 * s, func(w *world, t turn) { w.way = t.d }},
		{"server.clock", stretchForm, -widest, widest, func(w *world, t turn) {
			w.happens(t, "clock step", "the server's clock steps by "+signed(t.d),
				func() { w.StepServer(t.d) })
		}},
		{"outage", stretchForm, 0, longest, (*world).outages},
		{"election", stretchForm, -widest, widest, (*world).elects},
		{mirrorClock, lengthForm, -widest, widest, // only in cases that set this knob
			func(w *world, t turn) { w.mirrors = []time.Duration{0, t.d} }},
	}
)

const mirrorClock = "mirror.clock"

// A turn is a setting of a knob, by the reader or by the case.
type turn struct {
	who     string // letter of the process; empty for all processes
	dial    dial
	d, at   time.Duration // at is -1 for the time in the case
	decides bool          // the pause ends when a contender has decided
	word    string
	p       *process // nil if all processes share the knob

	// An accident strikes the nth command of a kind.
	kind Kind
	nth  int
	what accident
	used bool // it has struck
}

// The default time of an event, since the start of the play.
const when = 2*m + 10*s

// ownTurn parses a setting of cases.txt, for a process or for all processes.
func ownTurn(who, text string) (t turn, err error) {
	name, value, _ := strings.Cut(text, "=")
	dials := slices.Concat(dialsOf, dialsAll, acts)
	i := slices.IndexFunc(dials, func(l dial) bool { return l.name == name })
	at, decides := strings.CutPrefix(value, "decision@")
	if decides {
		value = "0s@" + at
	}
	t, err = dials[i].read(value)
	if t.what == late {
		t.dial.name = "late"
	}
	t.who, t.decides = who, decides
	return t, err
}

func (t turn) name() string {
	if t.who == "" {
		return t.dial.name
	}
	return t.who + "." + t.dial.name
}

// allKinds lists the commands that a setting may name.
const allKinds = "ping, read, insert, grab, finalize, sight, take-over, release, read-again, " +
	"clean, clock, write, ask"

func (l dial) read(text string) (t turn, err error) {
	t = turn{dial: l, at: -1, what: accidentsOf[l.name]}
	bad := func(why string) (turn, error) {
		return turn{}, fmt.Errorf("%.40q %s; the format is %s", text, why, l.form)
	}
	rest := strings.TrimSpace(text)
	switch t.word = rest; {
	case l.form == wordForm, rest == "none" && (l.form == delayForm || l.form == commandForm):
		return t, nil
	case l.form == delayForm || l.form == commandForm:
		command, length, long := strings.Cut(rest, ":")
		name, number, counted := strings.Cut(command, "#")
		if !counted {
			number = "1"
		}
		if !slices.Contains(strings.Split(allKinds, ", "), name) {
			return bad("does not name a command (" + allKinds + ")")
		}
		if t.nth, err = strconv.Atoi(number); err != nil || t.nth < 1 {
			return bad("has a number that is not at least 1")
		}
		t.kind = Kind(strings.ReplaceAll(name, "-", " "))
		if l.form == commandForm && long {
			return bad("must not have a LENGTH")
		} else if l.form == commandForm {
			return t, nil
		}
		rest = length
	}
	length, at, timed := strings.Cut(rest, "@")
	if timed && l.form != stretchForm {
		return bad("must not have a TIME")
	}
	if t.d, err = time.ParseDuration(length); err != nil {
		return bad("is not a length of time")
	}
	if timed {
		if t.at, err = time.ParseDuration(at); err != nil || t.at < 0 || t.at > longest {
			return bad(fmt.Sprintf("has a TIME outside 0s to %s", Span(longest)))
		}
	}
	if t.d < l.least || t.d > l.most {
		return bad(fmt.Sprintf("is not between %s and %s", Span(l.least), Span(l.most)))
	}
	if l.form == instantForm {
		t.at = t.d
	}
	return t, nil
}

// With returns the case with changed knobs. Each setting is NAME=VALUE. NAME may omit the process
// if the case itself sets this knob for only one process. The settings replace the settings of the
// same knob in the case. A knob may occur in several settings, and all of them apply. An unknown
// knob or an invalid value is an error.
func (c Case) With(settings ...string) (Case, error) {
	c.Set = nil
	was := c.sets()
	var turns []turn
	for _, text := range settings {
		name, value, _ := strings.Cut(text, "=")
		k, err := c.knob(strings.TrimSpace(name))
		if err != nil {
			return Case{}, err
		}
		t, err := k.dial.read(value)
		if err != nil {
			return Case{}, fmt.Errorf("%s: %w", k.name(), err)
		}
		t.who = k.who
		c.Set = append(c.Set, k.name()+"="+strings.TrimSpace(value))
		c.Length = max(c.Length, max(t.at, when)+min(t.d, longest)+5*m)
		before := was[k.name()]
		if t.at < 0 {
			t.at = cmp.Or(before.at, when)
		}
		if before.what == late && before.kind == t.kind {
			t.what = late
		}
		turns = append(turns, t)
		c.own = slices.DeleteFunc(slices.Clone(c.own),
			func(o turn) bool { return o.name() == k.name() })
	}
	c.own = append(c.own, turns...)
	return c, nil
}

// knob finds a knob by its name. The name may omit the process if the case itself sets this knob
// for only one process.
func (c Case) knob(name string) (turn, error) {
	var short []turn
	var all []string
	own := c.sets()
	for _, who := range append(c.names(), "") {
		dials := dialsOf
		if who == "" {
			dials = dialsAll
		}
		for _, l := range dials {
			k := turn{who: who, dial: l}
			_, set := own[k.name()]
			switch {
			case l.name == mirrorClock && !set:
				continue
			case k.name() == name:
				return k, nil
			case set && l.name == name:
				short = append(short, k)
			}
			all = append(all, k.name())
		}
	}
	if len(short) == 1 {
		return short[0], nil
	}
	return turn{}, fmt.Errorf("there is no knob %.40q; the case %s has %s", name, c.Name,
		strings.Join(all, ", "))
}
