package study

import (
	"context"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Stage is where a case says who takes part and what happens. All times are since the start of
// the play, by true time.
type Stage struct{ w *world }

// Process lets a process take part from the start. Its name is a letter.
func (s *Stage) Process(name string) *Actor {
	p := &process{Process: s.w.NewProcess(len(s.w.processes), 1), w: s.w, name: name, host: strings.ToLower(name),
		counts: map[Kind]int{}, over: make(chan struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	s.w.processes = append(s.w.processes, p)
	a := &Actor{p}
	a.made()
	return a
}

// ServerClock steps the server's clock.
func (s *Stage) ServerClock(at, by time.Duration) {
	if s.w.has(turn{knob: "server.clock", at: at, d: by}) {
		return
	}
	s.w.At(at, -1, func() {
		s.w.StepServer(by)
		s.w.record.mark(nil, "clock step", "the server's clock steps by "+signed(by))
	})
}

// Mirrors gives the config server two mirrors, whose clocks are so far ahead. A replica set has none.
func (s *Stage) Mirrors(ahead ...time.Duration) {
	s.w.has(turn{knob: "mirror.clock", d: ahead[len(ahead)-1]})
	s.w.mirrors = ahead
}

// Election makes another server primary, whose clock differs by that much from the last one's.
func (s *Stage) Election(at, by time.Duration) {
	if !s.w.has(turn{knob: "election", at: at, d: by}) {
		s.elect(at, by)
	}
}

func (s *Stage) elect(at, by time.Duration) {
	s.w.At(at, -1, func() {
		s.w.Elect(by)
		text := "another server is primary"
		if by != 0 {
			text += ", its clock differs by " + signed(by)
		}
		s.w.record.mark(nil, "election", text)
	})
}

// Outage takes so many config servers away for d that nothing can be written. Mirrored ones are read
// all the same. A replica set has no primary then, and elects one in the end, which gives it a new
// election id whoever it is.
func (s *Stage) Outage(at, d time.Duration) {
	if s.w.has(turn{knob: "outage", at: at, d: d}) {
		return
	}
	text := map[bool]string{false: "a mirrored server is away: nobody can write",
		true: "too few members: there is no primary"}[s.w.generation.replicaSet]
	s.w.At(at, -1, func() {
		s.w.outage++
		s.w.record.mark(nil, "trouble", text+" for "+Span(d))
	})
	s.w.At(at+d, -1, func() {
		if s.w.outage--; s.w.outage > 0 {
			return
		}
		s.w.record.mark(nil, "trouble", "all servers are back")
	})
	if s.w.generation.replicaSet {
		s.elect(at+d, 0)
	}
}

// Operator sets fields of the lock document by hand.
func (s *Stage) Operator(at time.Duration, set bson.D) {
	s.w.At(at, -1, func() {
		s.w.record.mark(nil, "operator", "an operator sets "+says(set))
		s.w.change(locks, byID(lockName), set, true)
		s.w.record.changes(nil, "")
	})
}

// Held is the state of a held lock in the generation that is played.
func (s *Stage) Held() int32 { return s.w.generation.held }

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	return "+" + Span(d)
}

// An Actor is a process of a case.
type Actor struct{ p *process }

// Ahead sets how far its clock is ahead.
func (a *Actor) Ahead(d time.Duration) *Actor {
	if !a.has("clock", turn{d: d}) {
		a.p.Clock.Step(d)
		a.made()
	}
	return a
}

// has notes that the case sets a knob of the process, and reports whether it was set otherwise.
func (a *Actor) has(knob string, t turn) bool {
	t.who, t.knob = a.p.name, knob
	return a.p.w.has(t)
}

// From lets the process start later.
func (a *Actor) From(at time.Duration) *Actor { a.p.starts = at; return a }

// Tries lets it try so often, by commands that make a lock object each, where that is left to the
// caller: before 2.4.
func (a *Actor) Tries(every time.Duration) *Actor {
	if !a.has("tries", turn{d: every}) {
		a.p.pace = every
	}
	return a
}

// Elsewhere lets it lock in another cluster as well.
func (a *Actor) Elsewhere() *Actor { a.p.abroad = true; return a }

// SameHost puts it on the host of another process, started in the same second.
func (a *Actor) SameHost(as *Actor) *Actor { a.p.host = as.p.host; a.made(); return a }

// made makes its lock manager again: its id depends on where it runs.
func (a *Actor) made() {
	g := a.p.w.generation
	if a.p.role == old {
		g = Generations()[1]
	}
	a.p.locks = g.make(a.p, g.release)
}

// As says what it is besides.
func (a *Actor) As(r role) *Actor { a.p.role = r; a.made(); return a }

// Wants lets it want the lock from an instant on, wait for so long (0: one try), and work for so
// long.
func (a *Actor) Wants(at, patience, work time.Duration) *Job {
	j := &job{at: at, patience: patience, work: work}
	a.p.jobs = append(a.p.jobs, j)
	return &Job{j}
}

// Dies ends the process.
func (a *Actor) Dies(at time.Duration) {
	if !a.has("dies", turn{at: at}) {
		a.p.w.At(at, -1, a.p.die)
	}
}

// Pauses stops the process for d, as SIGSTOP does, a VM that is moved, or swapping.
func (a *Actor) Pauses(at, d time.Duration) {
	if !a.has("pause", turn{at: at, d: d}) {
		a.p.w.At(at, -1, func() { a.p.pause(d) })
	}
}

// CutOff lets none of its commands reach the server for d.
func (a *Actor) CutOff(at, d time.Duration) {
	if a.has("cut", turn{at: at, d: d}) {
		return
	}
	w := a.p.w
	w.At(at, -1, func() {
		a.p.cut++
		w.record.mark(a.p, "trouble", "is cut off from the server")
		w.record.span(a.p, "cut", w.Now(), w.Now()+d)
	})
	w.At(at+d, -1, func() {
		if a.p.cut--; a.p.cut > 0 {
			return
		}
		w.record.mark(a.p, "resume", "reaches the server again")
	})
}

// ClockSteps steps its wall clock.
func (a *Actor) ClockSteps(at, by time.Duration) {
	if a.has("step", turn{at: at, d: by}) {
		return
	}
	a.p.w.At(at, -1, func() {
		a.p.Clock.Step(by)
		a.p.w.record.mark(a.p, "clock step", "its clock steps by "+signed(by))
	})
}

// ClockStands stops its wall clock for ever.
func (a *Actor) ClockStands(at time.Duration) {
	a.p.w.At(at, -1, func() {
		a.p.stands = true
		a.p.Clock.Stand()
		a.p.w.record.mark(a.p, "clock step", "its clock stands still")
	})
}

// ShutsDown ends the process in order: its lock manager is closed first.
func (a *Actor) ShutsDown(at time.Duration) {
	a.p.w.At(at, -1, func() {
		a.p.w.record.mark(a.p, "death", "shuts down")
		a.p.Go(func() {
			a.p.locks.close()
			a.p.w.After(a.p.w.way, a.p.die)
		})
	})
}

// Strikes lets something happen to its nth command of a kind, or with 0 to the first from at on.
func (a *Actor) Strikes(what accident, kind Kind, nth int, at, d time.Duration) {
	knob := map[accident]string{delayed: "late", late: "late", replyLost: "lost"}[what]
	if knob != "" && a.has(knob, turn{kind: kind, nth: nth, d: d, what: what}) {
		return
	}
	a.p.w.stops = append(a.p.w.stops, &stop{p: a.p, kind: kind, nth: nth, at: at, what: what, d: d})
}

// A Job is what a process wants the lock for.
type Job struct{ j *job }

// Times lets it do that so often, each time at once when the last one is over.
func (j *Job) Times(n int) *Job { j.j.times = n; return j }

// Hangs lets the thread that holds the lock hang for ever after so much work.
func (j *Job) Hangs(after time.Duration) *Job { j.j.hangs = after; return j }

// Asks lets the holder ask the server before each write.
func (j *Job) Asks() *Job { j.j.asks = true; return j }

// ReleasesTwice lets it release once more, so long after its release.
func (j *Job) ReleasesTwice(after time.Duration) *Job { j.j.twice = after; return j }

// Leased gives the lock a life of its own, where a generation has such a thing.
func (j *Job) Leased(d time.Duration) *Job { j.j.lease = d; return j }
