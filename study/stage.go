package main

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A turn is a setting of a case, for one process or for all.
type turn struct {
	who   string // letter of the process; empty for all processes
	do    func(*world, turn)
	value string
	d, at time.Duration
	p     *process // nil if the setting is for all processes

	// An accident strikes the nth command of a kind.
	what accident
	kind Kind
	nth  int
	used bool // it has struck
}

// acts maps the name of a setting to the function that applies it. Times are measured from the
// start of the simulation by a correct clock.
var acts = map[string]func(*world, turn){
	"wants": func(_ *world, t turn) { t.p.jobs = append(t.p.jobs, &job{at: t.at, work: t.d}) },
	"waits": ofJob(func(j *job, t turn) { j.patience = t.d }),
	"times": ofJob(func(j *job, t turn) { j.times, _ = strconv.Atoi(t.value) }),
	"asks":  ofJob(func(j *job, _ turn) { j.asks = true }),
	"hangs": ofJob(func(j *job, t turn) { j.hangs = t.d }),
	"lease": ofJob(func(j *job, t turn) { j.lease = t.d }),
	"from":  func(_ *world, t turn) { t.p.starts = t.d },
	"host": func(_ *world, t turn) {
		t.p.host, t.p.port = strings.ToLower(t.value), t.p.port+1
	},
	"role":  func(_ *world, t turn) { t.p.role = t.value },
	"tries": func(_ *world, t turn) { t.p.pace = t.d },
	"clock": func(_ *world, t turn) { t.p.Clock.Step(t.d) },
	"stands": func(w *world, t turn) {
		w.happens(t.d, t.p, "clock step", "its clock is frozen", t.p.Clock.Stand)
	},
	"pause":        (*world).pauses,
	"cut":          (*world).cutOff,
	"dies":         func(w *world, t turn) { w.At(t.d, -1, t.p.die) },
	"frees":        (*world).frees,
	"drops":        (*world).drops,
	"outage":       (*world).outages,
	"election":     func(w *world, t turn) { w.elects(t.d) },
	"mirror.clock": func(w *world, t turn) { w.mirrors = []time.Duration{0, t.d} },
	"server.clock": func(w *world, t turn) {
		w.happens(t.at, nil, "clock step", "the server's clock steps ahead by "+Span(t.d),
			func() { w.StepServer(t.d) })
	},
}

// accidents maps the name of a setting to the accident that it causes.
var accidents = map[string]accident{"late": delayed, "lost": replyLost, "refused": refused,
	"stills": pauseAfter, "forsaken": late}

// parseTurn parses a setting of cases.txt. The value is COMMAND#N[:LENGTH] of an accident, a word,
// or LENGTH[@TIME].
func parseTurn(who, text string) (t turn, err error) {
	name, value, _ := strings.Cut(text, "=")
	t = turn{who: who, do: acts[name], value: value, what: accidents[name]}
	length, at, timed := strings.Cut(value, "@")
	switch {
	case t.what != "":
		t.do = func(w *world, t turn) { w.stops = append(w.stops, &t) }
		command, after, long := strings.Cut(value, ":")
		kind, nth, _ := strings.Cut(command, "#")
		t.kind = Kind(strings.ReplaceAll(kind, "-", " "))
		if t.nth, err = strconv.Atoi(nth); err != nil || !long {
			return t, err
		}
		length = after
	case t.do == nil:
		return t, errors.New("there is no such setting")
	case slices.Contains([]string{"times", "asks", "host", "role"}, name):
		return t, nil
	}
	if timed {
		if t.at, err = time.ParseDuration(at); err != nil || length == "decision" {
			return t, err
		}
	}
	t.d, err = time.ParseDuration(length)
	return t, err
}

// ofJob returns a function that applies a setting to the last job of a process.
func ofJob(set func(*job, turn)) func(*world, turn) {
	return func(_ *world, t turn) { set(t.p.jobs[len(t.p.jobs)-1], t) }
}

// happens schedules an event. The event calls the given function and adds a mark to the record.
func (w *world) happens(at time.Duration, p *process, kind, text string, do func()) {
	w.At(at, -1, func() {
		do()
		w.record.mark(p, kind, text)
	})
}

// pauses stops a process for a while, like SIGSTOP, the move of a VM, or swapping. With "decision"
// the process stops until a contender has decided.
func (w *world) pauses(t turn) {
	if t.d == 0 {
		t.d = w.generation.decides
	}
	w.At(t.at, -1, func() { t.p.pause(t.d) })
}

// cutOff prevents all commands of a process from reaching the server for a while.
func (w *world) cutOff(t turn) {
	w.happens(t.at, t.p, "trouble", "is cut off from the server", func() {
		t.p.cut = true
		w.record.span(t.p, "cut", w.Now(), w.Now()+t.d)
	})
	w.happens(t.at+t.d, t.p, "resume", "reaches the server again", func() { t.p.cut = false })
}

// outages stops some config servers for a while, so that no write is possible. Mirrored config
// servers can still be read. A replica set has no primary meanwhile, and elects one at the end.
func (w *world) outages(t turn) {
	text := "a mirrored server is down: no process can write"
	if w.generation.replicaSet {
		text = "too few members are up: there is no primary"
	}
	w.happens(t.at, nil, "trouble", text+" for "+Span(t.d), func() { w.outage = true })
	w.happens(t.at+t.d, nil, "trouble", "all servers are up again", func() { w.outage = false })
	if w.generation.replicaSet {
		w.elects(t.at + t.d)
	}
}

// elects makes another server primary. Its clock shows the same time.
func (w *world) elects(at time.Duration) {
	w.happens(at, nil, "election", "another server becomes primary", func() { w.Elect(0) })
}

// drops removes all documents of both collections, like setFeatureCompatibilityVersion of 7.0.
func (w *world) drops(t turn) {
	w.happens(t.d, nil, "operator", "the upgrade drops both collections", func() {
		for _, collection := range []string{locks, pings} {
			for _, raw := range w.Server.Documents(collection) {
				w.Server.Remove(collection, decode(raw).text("_id"))
			}
		}
		w.record.changes(nil)
	})
}

// frees makes an operator free the lock.
func (w *world) frees(t turn) {
	w.happens(t.d, nil, "operator", "an operator sets "+value(free), func() {
		_, _ = w.change(locks, free, true, byID(w.lock)) // the _id is in no other document
		w.record.changes(nil)
	})
}
