package virtual

import (
	"sync/atomic"
	"time"
)

// A Process is one that takes part. It dies, or stops for a while, as far as anybody else can see:
// its goroutines wait for what it would notice only if it ran. Its fields belong to the loop of the
// world.
type Process struct {
	Index int
	Clock *Clock
	// Dead says that it has died, Paused how many stops are under way, and Resumed when it last ran
	// again.
	Dead    bool
	Paused  int
	Resumed time.Duration

	w       *World
	waiting []func() // what it notices when it runs again

	running        atomic.Int32 // goroutines of it
	buried, frozen atomic.Bool
}

// NewProcess returns a process whose clocks run at a rate.
func (w *World) NewProcess(index int, rate float64) *Process {
	p := &Process{Index: index, w: w}
	p.Clock = &Clock{p: p, rate: rate}
	w.processes = append(w.processes, p)
	return p
}

// Go starts a goroutine of the process. It must end when the process is buried.
func (p *Process) Go(do func()) {
	p.running.Add(1)
	go func() { // ends when the process is buried: see World.Drain
		defer p.running.Add(-1)
		do()
	}()
}

// Running counts the goroutines that Go has started and that have not ended.
func (p *Process) Running() int { return int(p.running.Load()) }

// Buried reports whether the play is over for the process. Any goroutine may ask.
func (p *Process) Buried() bool { return p.buried.Load() }

// Frozen reports whether the process is dead or stopped: it cannot notice that a context ended. Any
// goroutine may ask.
func (p *Process) Frozen() bool { return p.frozen.Load() }

// WhenRunning runs something that the process notices: at once, or when it runs again; for a dead
// one when it is buried, so that its goroutines can end.
func (p *Process) WhenRunning(do func()) {
	if p.Frozen() {
		p.waiting = append(p.waiting, do)
		return
	}
	do()
}

// Die ends the process as far as anybody else can see. Its goroutines end when it is buried.
func (p *Process) Die() {
	p.Dead = true
	p.frozen.Store(true)
}

// Pause stops the process for d, suspended: with its monotonic clock; then it calls over, unless
// the process has died.
func (p *Process) Pause(d time.Duration, suspended bool, over func()) {
	p.Paused++
	p.frozen.Store(true)
	if suspended {
		p.Clock.suspend(true)
	}
	p.w.After(d, func() {
		if p.Dead {
			return
		}
		if suspended {
			p.Clock.suspend(false)
		}
		p.resume()
		over()
	})
}

// Wake ends all stops of the process.
func (p *Process) Wake() {
	p.Clock.suspend(false)
	for p.Paused > 0 {
		p.resume()
	}
}

// resume ends one stop, if there is one.
func (p *Process) resume() {
	if p.Paused--; p.Paused != 0 {
		p.Paused = max(p.Paused, 0)
		return
	}
	p.frozen.Store(false)
	p.Resumed = p.w.Now()
	waiting := p.waiting
	p.waiting = nil
	for _, do := range waiting {
		p.w.At(p.w.Now(), p.Index, func() { p.WhenRunning(do) })
	}
}

// Bury ends the play for the process, so that its goroutines end: it calls fail, which fails what
// the process waits for, and the process notices whatever it would have noticed.
func (p *Process) Bury(fail func()) {
	p.buried.Store(true)
	p.frozen.Store(false)
	p.Clock.suspend(false)
	fail()
	waiting := p.waiting
	p.waiting = nil
	for _, do := range waiting {
		do()
	}
	p.w.Poke()
}
