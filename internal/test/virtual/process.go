package virtual

import (
	"sync/atomic"
	"time"
)

// A Process is a simulated process. While it is dead or paused, its goroutines receive no event.
// Only the event loop of the world accesses the fields of a Process.
type Process struct {
	Index int
	Clock *Clock
	// Dead is true after the death of the process. Paused is the number of active pauses. Resumed is
	// the time at which the last pause ended.
	Dead    bool
	Paused  int
	Resumed time.Duration

	w       *World
	waiting []func() // events to deliver when the process runs again

	running        atomic.Int32 // number of its goroutines
	buried, frozen atomic.Bool
}

// NewProcess returns a process whose clocks run at the given rate.
func (w *World) NewProcess(index int, rate float64) *Process {
	p := &Process{Index: index, w: w}
	p.Clock = &Clock{p: p, rate: rate}
	w.processes = append(w.processes, p)
	return p
}

// Go starts a goroutine of the process. After Bury, the goroutine must end.
func (p *Process) Go(do func()) {
	p.running.Add(1)
	go func() { // ends when the process is buried: see World.Drain
		defer p.running.Add(-1)
		do()
	}()
}

// Running returns the number of goroutines that Go has started and that have not returned.
func (p *Process) Running() int { return int(p.running.Load()) }

// Buried reports whether Bury was called. It is safe for concurrent use.
func (p *Process) Buried() bool { return p.buried.Load() }

// Frozen reports whether the process is dead or paused. A frozen process cannot react to the end of
// a context. Frozen is safe for concurrent use.
func (p *Process) Frozen() bool { return p.frozen.Load() }

// WhenRunning calls the given function immediately if the process runs. Otherwise the call waits
// until the process runs again. If the process is dead, Bury makes the call, so that the goroutines
// of the process can end.
func (p *Process) WhenRunning(do func()) {
	if p.Frozen() {
		p.waiting = append(p.waiting, do)
		return
	}
	do()
}

// Die simulates the death of the process. The goroutines of the process end after Bury.
func (p *Process) Die() {
	p.Dead = true
	p.frozen.Store(true)
}

// Pause stops the process for d. If suspended is set, the monotonic clock of the process stops,
// too. After the pause, the given function is called, unless the process has died.
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

// Bury makes the goroutines of the process end. It first calls the given function, which must fail
// the pending commands of the process. Then it delivers all delayed events.
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
