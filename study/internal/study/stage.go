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
	a.p.locks = s.w.generation.make(p)
	return a
}

// ServerClock steps the server's clock.
func (s *Stage) ServerClock(at, by time.Duration) {
	s.w.At(at, -1, func() {
		s.w.StepServer(by)
		s.w.record.mark(nil, "clock step", "the server's clock steps by "+signed(by))
	})
}

// Election makes another server primary, whose clock differs by that much from the last one's.
func (s *Stage) Election(at, by time.Duration) {
	s.w.At(at, -1, func() {
		s.w.Elect(by)
		text := "another server is primary"
		if by != 0 {
			text += ", its clock differs by " + signed(by)
		}
		s.w.record.mark(nil, "election", text)
	})
}

// ReadOnly lets the server refuse every write for d: too few servers are there.
func (s *Stage) ReadOnly(at, d time.Duration) {
	s.w.At(at, -1, func() {
		s.w.readOnly = true
		s.w.record.mark(nil, "trouble", "too few servers: nobody can write for "+Span(d))
	})
	s.w.At(at+d, -1, func() {
		s.w.readOnly = false
		s.w.record.mark(nil, "trouble", "all servers are back")
	})
}

// Operator sets fields of the lock document by hand.
func (s *Stage) Operator(at time.Duration, set bson.D) {
	s.w.At(at, -1, func() {
		s.w.record.mark(nil, "operator", "an operator sets "+says(set))
		s.w.change(locks, bson.D{{Key: "_id", Value: lockName}}, set, true)
		s.w.record.changes(nil)
	})
}

// Held is the state of a held lock in the generation that is played.
func (s *Stage) Held() int32 {
	if s.w.generation.Name == "2.0" || s.w.generation.Name == "3.2" {
		return held
	}
	return 1
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	return "+" + Span(d)
}

// An Actor is a process of a case.
type Actor struct{ p *process }

// Ahead sets how far its clock is ahead.
func (a *Actor) Ahead(d time.Duration) *Actor { a.p.Clock.Step(d); a.made(); return a }

// From lets the process start later.
func (a *Actor) From(at time.Duration) *Actor { a.p.starts = at; return a }

// SameHost puts it on the host of another process, started in the same second.
func (a *Actor) SameHost(as *Actor) *Actor { a.p.host = as.p.host; a.made(); return a }

// made makes its lock manager again: its id depends on where it runs.
func (a *Actor) made() {
	a.p.locks = a.p.w.generation.make(a.p)
	if a.p.role == old && a.p.w.generation.Name == "2.0" {
		a.p.locks = newGen18(a.p)
	}
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
func (a *Actor) Dies(at time.Duration) { a.p.w.At(at, -1, a.p.die) }

// Pauses stops the process for d, as SIGSTOP does, a VM that is moved, or swapping.
func (a *Actor) Pauses(at, d time.Duration) { a.p.w.At(at, -1, func() { a.p.pause(d) }) }

// CutOff lets none of its commands reach the server for d.
func (a *Actor) CutOff(at, d time.Duration) {
	w := a.p.w
	w.At(at, -1, func() {
		a.p.cut = true
		w.record.mark(a.p, "trouble", "is cut off from the server")
		w.record.span(a.p, "cut", w.Now(), w.Now()+d)
	})
	w.At(at+d, -1, func() {
		a.p.cut = false
		w.record.mark(a.p, "resume", "reaches the server again")
	})
}

// ClockSteps steps its wall clock.
func (a *Actor) ClockSteps(at, by time.Duration) {
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
			a.p.w.After(way, a.p.die)
		})
	})
}

// Strikes lets something happen to its nth command of a kind, or with 0 to the first from at on.
func (a *Actor) Strikes(what accident, kind Kind, nth int, at, d time.Duration) {
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
