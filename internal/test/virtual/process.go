package virtual

import (
	"sync/atomic"
	"time"
)

// A Process is one process of a play. Its death and pauses are simulated: its goroutines receive no
// event until it runs again. Only the loop of the world accesses its fields.
type Process struct {
	Index int
	Clock *Clock
	// Dead is true after the death of the process. Paused is the number of active pauses. Resumed
	// is the end of the last pause.
	Dead    bool
	Paused  int
	Resumed time.Duration

	w       *World
	waiting []func() // events to deliver when the process runs again

	running        atomic.Int32 // number of its goroutines
	buried, frozen atomic.Bool
}

// NewProcess returns a process with clocks of the given rate.
func (w *World) NewProcess(index int, rate float64) *Process {
	p := &Process{Index: index, w: w}
	p.Clock = &Clock{p: p, rate: rate}
	w.processes = append(w.processes, p)
	return p
}

// Go starts a goroutine of the process. The goroutine must end when the process is buried.
func (p *Process) Go(do func()) {
	p.running.Add(1)
	go func() { // ends when the process is buried: see World.Drain
		defer p.running.Add(-1)
		do()
	}()
}

// Running returns the number of running goroutines that Go has started.
func (p *Process) Running() int { return int(p.running.Load()) }

// Buried reports whether the play is over for the process. Safe for concurrent use.
func (p *Process) Buried() bool { return p.buried.Load() }

// Frozen reports whether the process is dead or paused. A frozen process cannot react to the end of
// a context. Safe for concurrent use.
func (p *Process) Frozen() bool { return p.frozen.Load() }

// WhenRunning calls a function that delivers an event to the process: immediately, or when the
// process runs again. For a dead process it calls the function at the burial, so that the
// goroutines of the process can end.
func (p *Process) WhenRunning(do func()) {
	if p.Frozen() {
		p.waiting = append(p.waiting, do)
		return
	}
	do()
}

// Die simulates the death of the process. Its goroutines end when it is buried.
func (p *Process) Die() {
	p.Dead = true
	p.frozen.Store(true)
}

// Pause stops the process for d. If suspended is set, it also stops the monotonic clock. Afterwards
// it calls the function over, unless the process has died.
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

// Wake ends all pauses of the process.
func (p *Process) Wake() {
	p.Clock.suspend(false)
	for p.Paused > 0 {
		p.resume()
	}
}

// resume ends one pause of the process, if any.
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

// Bury ends the play for the process, so that its goroutines end. It calls fail, which must fail
// the process's pending commands, and then delivers all delayed events.
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
