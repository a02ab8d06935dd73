package main

import (
	"strconv"
	"strings"
	"time"
)

// acts lists the settings of a case that the reader of the course cannot change. Their times are
// measured from the start of the simulation by a correct clock.
var acts = []dial{
	{"wants", stretchForm, 0, longest, // the process tries once at TIME, and works for LENGTH
		func(_ *world, t turn) { t.p.jobs = append(t.p.jobs, &job{at: t.at, work: t.d}) }},
	{"waits", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.patience = t.d })},
	{"times", wordForm, 0, 0, ofJob(func(j *job, t turn) { j.times, _ = strconv.Atoi(t.word) })},
	{"asks", wordForm, 0, 0, ofJob(func(j *job, _ turn) { j.asks = true })},
	{"hangs", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.hangs = t.d })},
	{"lease", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.lease = t.d })},
	{"from", instantForm, 0, longest, func(_ *world, t turn) { t.p.starts = t.at }},
	{"host", wordForm, 0, 0,
		func(_ *world, t turn) { t.p.host, t.p.port = strings.ToLower(t.word), t.p.port+1 }},
	{"role", wordForm, 0, 0, func(_ *world, t turn) { t.p.role = t.word }},
	{"stands", instantForm, 0, longest, func(w *world, t turn) { // forever
		t.p.stands = true
		w.happens(t, "clock step", "its clock is frozen", t.p.Clock.Stand)
	}},
	{"refused", commandForm, 0, 0, (*world).strikes},
	{"forsaken", delayForm, 0, longest, (*world).strikes},
	{"stills", delayForm, 0, longest, (*world).strikes},
	{"frees", instantForm, 0, longest, (*world).frees},
	{"drops", instantForm, 0, longest, (*world).drops},
}

// ofJob returns a function that applies a setting to the last job of a process.
func ofJob(set func(*job, turn)) func(*world, turn) {
	return func(_ *world, t turn) { set(t.p.jobs[len(t.p.jobs)-1], t) }
}

// An event is scheduled at the time of the setting. The event calls the given function and adds a
// mark to the record.
func (w *world) happens(t turn, kind, text string, do func()) {
	w.At(t.at, -1, func() {
		do()
		w.record.mark(t.p, kind, text)
	})
}

// The process stops for a while, like after SIGSTOP, during the move of a VM, or while it is
// swapped out.
func (w *world) pauses(t turn) {
	if t.d > 0 {
		w.At(t.at, -1, func() { t.p.pause(t.d) })
	}
}

// cutOff prevents all commands of a process from reaching the server for a while.
func (w *world) cutOff(t turn) {
	if t.d == 0 {
		return
	}
	w.happens(t, "trouble", "is cut off from the server", func() {
		t.p.cut++
		w.record.span(t.p, "cut", w.Now(), w.Now()+t.d)
	})
	w.At(t.at+t.d, -1, func() {
		if t.p.cut--; t.p.cut == 0 {
			w.record.mark(t.p, "resume", "reaches the server again")
		}
	})
}

// Some config servers stop for a while, so that no write is possible. Mirrored config servers can
// still be read. A replica set has no primary meanwhile, and elects a primary at the end.
func (w *world) outages(t turn) {
	if t.d == 0 {
		return
	}
	text := "a mirrored server is down: no process can write"
	if w.generation.replicaSet {
		text = "too few members are up: there is no primary"
	}
	w.happens(t, "trouble", text+" for "+Span(t.d), func() { w.outage++ })
	w.At(t.at+t.d, -1, func() {
		if w.outage--; w.outage == 0 {
			w.record.mark(nil, "trouble", "all servers are up again")
		}
	})
	if w.generation.replicaSet {
		w.elects(turn{at: t.at + t.d})
	}
}

// Another server becomes primary. Its clock is t.d ahead of the clock of the previous primary.
func (w *world) elects(t turn) {
	if !w.generation.replicaSet {
		w.missed = append(w.missed, "election, because mirrored config servers elect no primary")
		return
	}
	text := "another server becomes primary"
	if t.d != 0 {
		text += ", its clock differs by " + signed(t.d)
	}
	w.happens(t, "election", text, func() { w.Elect(t.d) })
}

// All documents of both collections are removed, as setFeatureCompatibilityVersion of 7.0 does.
func (w *world) drops(t turn) {
	w.happens(t, "operator", "the upgrade drops both collections", func() {
		for _, collection := range []string{locks, pings} {
			for _, raw := range w.Server.Documents(collection) {
				w.Server.Remove(collection, decode(raw).text("_id"))
			}
		}
		w.record.changes(nil)
	})
}

// An operator frees the lock.
func (w *world) frees(t turn) {
	w.happens(t, "operator", "an operator sets "+value(free), func() {
		_, _ = w.change(locks, free, true, byID(w.lock)) // the _id is in no other document
		w.record.changes(nil)
	})
}

// accidentsOf maps the name of a setting to the accident that the setting causes.
var accidentsOf = map[string]accident{"late": delayed, "lost": replyLost, "refused": refused,
	"stills": pauseAfter, "forsaken": late}

// The accident of a setting is scheduled. A setting without a command causes no accident.
func (w *world) strikes(t turn) {
	if t.kind != "" {
		w.stops = append(w.stops, &t)
	}
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	return "+" + Span(d)
}
