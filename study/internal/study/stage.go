package study

import (
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Here is what cases and knobs let happen. All times are since the start of the play, by true time.

// acts are what a case may set besides the knobs.
var acts = []dial{
	{"wants", "", stretchForm, 0, longest, (*world).wants},
	{"waits", "", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.patience = t.d })},
	{"times", "", wordForm, 0, 0, ofJob(func(j *job, t turn) { j.times, _ = strconv.Atoi(t.word) })},
	{"asks", "", wordForm, 0, 0, ofJob(func(j *job, _ turn) { j.asks = true })},
	{"hangs", "", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.hangs = t.d })},
	{"twice", "", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.twice = t.d })},
	{"lease", "", lengthForm, 0, longest, ofJob(func(j *job, t turn) { j.lease = t.d })},
	{"from", "", instantForm, 0, longest, func(_ *world, p *process, t turn) { p.starts = t.at }},
	{"host", "", wordForm, 0, 0,
		func(_ *world, p *process, t turn) { p.host = strings.ToLower(t.word) }},
	{"role", "", wordForm, 0, 0, func(_ *world, p *process, t turn) { p.role = role(t.word) }},
	{"elsewhere", "", wordForm, 0, 0, func(_ *world, p *process, _ turn) { p.abroad = true }},
	{"stands", "", instantForm, 0, longest, (*world).clockStands},
	{"closes", "", instantForm, 0, longest, (*world).closes},
	{"refused", "", commandForm, 0, 0, (*world).strikes},
	{"forsaken", "", delayForm, 0, longest, (*world).strikes},
	{"stills", "", delayForm, 0, longest, (*world).strikes},
	{"late.1", "", delayForm, 0, longest, (*world).strikes},
	{"late.2", "", delayForm, 0, longest, (*world).strikes},
	{"late.3", "", delayForm, 0, longest, (*world).strikes},
	{"throws", "", delayForm, 0, longest, (*world).strikesFrom},
	{"fails", "", delayForm, 0, longest, (*world).strikesFrom},
	{"apart", "", wordForm, 0, 0, func(w *world, _ *process, _ turn) {
		w.mirrors, w.copies = make([]time.Duration, 2), make([]document, 2)
	}},
	{"empties", "", instantForm, 0, longest, (*world).empties},
	{"frees", "", instantForm, 0, longest,
		func(w *world, _ *process, t turn) { w.operator(t.at, free) }},
	{"restores", "", instantForm, 0, longest, func(w *world, _ *process, t turn) {
		const id = "gone:27017:1262304000:1"
		w.operator(t.at, bson.D{
			{Key: "state", Value: w.generation.held}, {Key: "who", Value: id + ":conn1"},
			{Key: "process", Value: id}, {Key: "when", Value: date(noon.Add(-48 * h))},
			{Key: "why", Value: "of the backup"}, {Key: "ts", Value: bson.ObjectID{1}},
		})
	}},
}

// wants lets a process want the lock from an instant on, try once, and work for so long.
func (w *world) wants(p *process, t turn) { p.jobs = append(p.jobs, &job{at: t.at, work: t.d}) }

// ofJob sets something of the last job.
func ofJob(set func(*job, turn)) func(*world, *process, turn) {
	return func(_ *world, p *process, t turn) { set(p.jobs[len(p.jobs)-1], t) }
}

// clockStands stops the wall clock of a process for ever.
func (w *world) clockStands(p *process, t turn) {
	w.At(t.at, -1, func() {
		p.stands = true
		p.Clock.Stand()
		w.record.mark(p, "clock step", "its clock stands still")
	})
}

// clockSteps steps the wall clock of a process.
func (w *world) clockSteps(p *process, t turn) {
	w.At(t.at, -1, func() {
		p.Clock.Step(t.d)
		w.record.mark(p, "clock step", "its clock steps by "+signed(t.d))
	})
}

// serverSteps steps the server's clock.
func (w *world) serverSteps(_ *process, t turn) {
	w.At(t.at, -1, func() {
		w.StepServer(t.d)
		w.record.mark(nil, "clock step", "the server's clock steps by "+signed(t.d))
	})
}

// mirrored gives the config server two mirrors, the clock of one of which is so far ahead. A
// replica set has none.
func (w *world) mirrored(_ *process, t turn) { w.mirrors = []time.Duration{0, t.d} }

// dies ends a process.
func (w *world) dies(p *process, t turn) { w.At(t.at, -1, p.die) }

// closes ends a process in order: its lock manager is closed first.
func (w *world) closes(p *process, t turn) {
	w.At(t.at, -1, func() {
		w.record.mark(p, "death", "shuts down")
		p.Go(func() {
			p.locks.close()
			w.After(w.way, p.die)
		})
	})
}

// pauses stops a process for a while, as SIGSTOP does, a VM that is moved, or swapping.
func (w *world) pauses(p *process, t turn) {
	if t.d > 0 {
		w.At(t.at, -1, func() { p.pause(t.d) })
	}
}

// cutOff lets none of the commands of a process reach the server for a while.
func (w *world) cutOff(p *process, t turn) {
	if t.d == 0 {
		return
	}
	w.At(t.at, -1, func() {
		p.cut++
		w.record.mark(p, "trouble", "is cut off from the server")
		w.record.span(p, "cut", w.Now(), w.Now()+t.d)
	})
	w.At(t.at+t.d, -1, func() {
		if p.cut--; p.cut == 0 {
			w.record.mark(p, "resume", "reaches the server again")
		}
	})
}

// outages takes so many config servers away for a while that nothing can be written. Mirrored ones
// are read all the same. A replica set has no primary then, and elects one in the end, which gives
// it a new election id whoever it is.
func (w *world) outages(_ *process, t turn) {
	if t.d == 0 {
		return
	}
	text := "a mirrored server is away: nobody can write"
	if w.generation.replicaSet {
		text = "too few members: there is no primary"
	}
	w.At(t.at, -1, func() {
		w.outage++
		w.record.mark(nil, "trouble", text+" for "+Span(t.d))
	})
	w.At(t.at+t.d, -1, func() {
		if w.outage--; w.outage == 0 {
			w.record.mark(nil, "trouble", "all servers are back")
		}
	})
	if w.generation.replicaSet {
		w.elects(nil, turn{at: t.at + t.d})
	}
}

// elects makes another server primary, whose clock differs by that much from the last one's.
func (w *world) elects(_ *process, t turn) {
	if !w.generation.replicaSet {
		w.missed = append(w.missed, "election, since its config servers elect nobody")
		return
	}
	w.At(t.at, -1, func() {
		w.Elect(t.d)
		text := "another server is primary"
		if t.d != 0 {
			text += ", its clock differs by " + signed(t.d)
		}
		w.record.mark(nil, "election", text)
	})
}

// empties takes the lock document away from the last of the mirrored servers.
func (w *world) empties(_ *process, t turn) {
	w.At(t.at, -1, func() {
		w.copies[len(w.copies)-1] = nil
		w.record.mark(nil, "operator", "the last server is replaced by an empty one")
	})
}

// operator sets fields of the lock document by hand.
func (w *world) operator(at time.Duration, set bson.D) {
	w.At(at, -1, func() {
		w.record.mark(nil, "operator", "an operator sets "+says(set))
		w.change(locks, byID(lockName), set, true)
		w.record.changes(nil, "")
	})
}

// accidentsOf are what the dials let happen to a command.
var accidentsOf = map[string]accident{"late": delayed, "late.1": delayed, "late.2": delayed,
	"late.3": delayed, "lost": replyLost, "refused": refused, "fails": refused, "throws": throws,
	"stills": pauseAfter, "forsaken": late}

// strikes lets something happen to the nth command of a kind, unless none is named; of one to a
// mirrored server by its number.
func (w *world) strikes(p *process, t turn) {
	if t.kind == "" {
		return
	}
	stop := &stop{p: p, kind: t.kind, nth: t.nth, what: t.what, d: t.d}
	if _, server, some := strings.Cut(t.dial.name, "."); some {
		stop.server = int(server[0] - '1')
	}
	w.stops = append(w.stops, stop)
}

// strikesFrom lets something happen to the first command of a kind from an instant on.
func (w *world) strikesFrom(p *process, t turn) {
	w.stops = append(w.stops, &stop{p: p, kind: t.kind, at: t.d, what: t.what})
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	return "+" + Span(d)
}
