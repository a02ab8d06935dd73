package virtual

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Process is one that takes part. It dies, or stops for a while, as far as anybody else can see: its
// goroutines wait for what it would notice only if it ran.
type Process struct {
	Index int
	Clock *Clock
	// Resumed is when it last ran again after a stop.
	Resumed time.Duration

	w       *World
	running atomic.Int32 // goroutines of it

	mu      sync.Mutex // guards what follows
	dead    bool
	paused  int // stops under way
	buried  bool
	waiting []func() // what it notices when it runs again
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

// Dead reports whether the process has died.
func (p *Process) Dead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Paused reports whether the process is stopped.
func (p *Process) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused > 0
}

// Buried reports whether the play is over for the process.
func (p *Process) Buried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buried
}

// Frozen reports whether the process is dead or stopped: it cannot notice that a context ended.
func (p *Process) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen()
}

func (p *Process) frozen() bool { return !p.buried && (p.dead || p.paused > 0) }

// WhenRunning runs something that the process notices: at once, or when it runs again; for a dead one when it
// is buried, so that its goroutines can end.
func (p *Process) WhenRunning(do func()) {
	p.mu.Lock()
	frozen := p.frozen()
	if frozen {
		p.waiting = append(p.waiting, do)
	}
	p.mu.Unlock()
	if !frozen {
		do()
	}
}

// Die ends the process as far as anybody else can see. Its goroutines end when it is buried.
func (p *Process) Die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// Pause stops the process for d, suspended: with its monotonic clock; then it calls over, unless the process has
// died.
func (p *Process) Pause(d time.Duration, suspended bool, over func()) {
	p.mu.Lock()
	p.paused++
	p.mu.Unlock()
	if suspended {
		p.Clock.suspend(true)
	}
	p.w.After(d, func() {
		if p.Dead() {
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
	for p.Paused() {
		p.resume()
	}
}

// resume ends one stop.
func (p *Process) resume() {
	p.mu.Lock()
	if p.paused == 0 {
		p.mu.Unlock()
		return
	}
	p.paused--
	if p.paused > 0 {
		p.mu.Unlock()
		return
	}
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	p.Resumed = p.w.Now()
	for _, do := range waiting {
		p.w.At(p.w.Now(), p.Index, func() { p.WhenRunning(do) })
	}
}

// Bury ends the play for the process, so that its goroutines end: it calls fail, which fails what the process
// waits for, and the process notices whatever it would have noticed.
func (p *Process) Bury(fail func()) {
	p.mu.Lock()
	p.buried = true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	p.Clock.suspend(false)
	fail()
	for _, do := range waiting {
		do()
	}
	p.w.Poke()
}
