package study

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mongodlm/internal/clock"
)

// Why a command failed.
var (
	// errUnreachable: it was certainly not carried out.
	errUnreachable = errors.New("no server can be reached")
	// errNoReply: nobody can know whether it was carried out.
	errNoReply = errors.New("the reply never came")
	// errThread is an exception of no standard kind: it ends the thread.
	errThread = errors.New("an exception that nobody catches")
)

// A process is one that takes part: a clock, a way to the server, and a lock manager of the generation that
// is played. Its fields belong to the loop of the world, except those that say otherwise.
type process struct {
	w      *world
	index  int
	name   string
	starts time.Duration
	role   role
	host   string
	jobs   []*job
	locks  manager

	ahead  time.Duration // of its wall clock
	stands time.Duration // since when its wall clock stands still; 0: it does not
	dead   bool
	paused int
	cut    bool
	later  []func() // what it notices when it runs again
	counts map[Kind]int

	ctx     context.Context // ends when it is buried
	end     context.CancelFunc
	over    chan struct{} // closed when it dies
	running atomic.Int32  // goroutines of it
	frozen  atomic.Bool   // dead or paused: it cannot notice that a context ended
	buried  atomic.Bool

	mu   sync.Mutex // guards what follows
	open []*command
}

// A role is what a process is besides.
type role uint8

const (
	plain        role = iota
	configServer      // a member of the config servers, of 3.4 and later
	shard             // a shard's primary, of 5.0 and later
	old               // a process of release 1.8, whatever the others are
)

// now is the wall clock of the process.
func (p *process) now() time.Time {
	at := p.w.now()
	if p.stands > 0 {
		at = p.stands
	}
	return noon.Add(at + p.ahead)
}

// begin starts the process.
func (p *process) begin() {
	p.w.record.mark(p, "start", "starts")
	p.spawn(func() {
		if !p.locks.start() {
			return
		}
		for _, j := range p.jobs {
			p.spawn(func() { j.run(p) })
		}
	})
}

// spawn starts a goroutine of the process.
func (p *process) spawn(do func()) {
	p.running.Add(1)
	go func() { // ends when the process dies, or is buried
		defer p.running.Add(-1)
		do()
	}()
}

// sleep waits. The goroutine of a process that dies meanwhile ends here.
func (p *process) sleep(d time.Duration) {
	done := make(chan struct{})
	p.w.post(&event{at: p.w.now() + max(d, 0), owner: p.index, key: "sleep " + site(),
		run: func() { p.whenRunning(func() { close(done) }) }})
	select {
	case <-done:
	case <-p.over:
		runtime.Goexit()
	}
}

// whenRunning runs something that the process notices: at once, or when it runs again.
func (p *process) whenRunning(do func()) {
	if !p.buried.Load() && (p.dead || p.paused > 0) {
		p.later = append(p.later, do)
		return
	}
	do()
}

// die ends the process as far as anybody can see.
func (p *process) die() {
	if p.dead {
		return
	}
	p.w.record.mark(p, "death", "dies")
	p.dead = true
	p.frozen.Store(true)
	p.w.judge.died(p)
	close(p.over)
}

// pause stops the process for d; its clocks go on.
func (p *process) pause(d time.Duration) {
	if p.dead {
		return
	}
	p.w.record.mark(p, "stop", "stands still")
	p.w.record.span(p, "paused", p.w.now(), p.w.now()+d)
	p.paused++
	p.frozen.Store(true)
	p.w.judge.pauses(p, d)
	p.w.at(p.w.now()+d, func() {
		if p.paused--; p.paused > 0 || p.dead {
			return
		}
		p.w.record.mark(p, "resume", "runs again")
		p.frozen.Store(false)
		later := p.later
		p.later = nil
		for _, do := range later {
			p.w.post(&event{at: p.w.now(), owner: p.index, run: func() { p.whenRunning(do) }})
		}
	})
}

// bury lets the goroutines of a process end: every command fails at once from now on.
func (p *process) bury() {
	if !p.dead {
		p.dead = true
		close(p.over)
	}
	p.buried.Store(true)
	p.frozen.Store(false)
	p.end()
	p.mu.Lock()
	open := p.open
	p.open = nil
	p.mu.Unlock()
	for _, c := range open {
		c.finish(errUnreachable)
	}
	for _, do := range p.later {
		do()
	}
	p.later = nil
}

// processClock is the clock of a process for the package distlock. Its timers are events of the agenda.
type processClock struct{ p *process }

var _ clock.Clock = processClock{}

// Now reads both clocks; the monotonic one goes on while the process stands still.
func (c processClock) Now() clock.Reading {
	return clock.Reading{Wall: c.p.now(), Mono: c.p.w.now()}
}

// Jitter leaves nothing to chance.
func (processClock) Jitter() float64 { return 0.5 }

// NewTimer makes a timer that fires while the process runs.
func (c processClock) NewTimer(d time.Duration) clock.Timer {
	t := &timer{p: c.p, c: make(chan time.Time, 1), site: site()}
	t.Reset(d)
	return t
}

type timer struct {
	p    *process
	c    chan time.Time
	site string

	mu    sync.Mutex // guards round
	round int        // of Reset and Stop; an older one does not fire
}

func (t *timer) C() <-chan time.Time { return t.c }

func (t *timer) Reset(d time.Duration) {
	t.Stop()
	t.mu.Lock()
	round := t.round
	t.mu.Unlock()
	fire := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.round == round {
			t.c <- t.p.now()
		}
	}
	t.p.w.post(&event{at: t.p.w.now() + max(d, 0), owner: t.p.index, key: "timer " + t.site,
		run: func() { t.p.whenRunning(fire) }})
}

func (t *timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	select {
	case <-t.c:
	default:
	}
}

// site names the functions that wait, so that two that ask for the same instant have an order.
func site() string {
	var pcs [6]uintptr
	n := runtime.Callers(3, pcs[:])
	if known, ok := sites.Load(pcs); ok {
		return known.(string)
	}
	frames := runtime.CallersFrames(pcs[:n])
	var names strings.Builder
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&names, "%s:%d ", f.Function, f.Line)
	}
	sites.Store(pcs, names.String())
	return names.String()
}

// sites are the names that were made already: what program counters mean does not change.
var sites sync.Map
