package study

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/test/virtual"
)

// A command that failed with errUnreachable was not carried out; with the others it is not known.
var (
	errUnreachable = errors.New("no server can be reached")
	errNoReply     = errors.New("the reply never came")
	errLimit       = fmt.Errorf("%w in time", errNoReply)
)

// A process is a participant: a clock, a connection to the server, and a lock manager of the played
// generation. Its fields belong to the loop of the world, unless noted otherwise.
type process struct {
	*virtual.Process
	w      *world
	name   string
	starts time.Duration
	role   string
	host   string
	port   int
	jobs   []*job
	limit  time.Duration // for which it waits for an answer; 0: for ever, as before 3.2
	beat   time.Duration // and for the answer to a ping, where that differs
	pace   time.Duration // of its tries, if the lock itself has no pace; 0: as the balancer
	locks  manager

	stands bool // its wall clock is frozen
	cut    int  // the number of present stretches in which it is cut off
	counts map[Kind]int
	writes int // versions of lock documents that its releases have made

	ctx  context.Context // ends when it is buried
	end  context.CancelFunc
	over chan struct{} // closed when it dies, or is buried

	mu   sync.Mutex // guards the rest
	open []*command
}

// The additional roles of a process: a member of the config servers of 3.4 and later, a shard's
// primary of 5.0 and later.
const configServer, shard = "config-server", "shard"

// now is the wall clock of the process.
func (p *process) now() time.Time { return p.Clock.Now().Wall }

// begin starts the process.
func (p *process) begin() {
	p.w.record.mark(p, "start", "starts")
	p.Go(func() {
		if !p.locks.start() {
			return
		}
		for _, j := range p.jobs {
			p.Go(func() { j.run(p) })
		}
	})
}

// sleep waits. The goroutine of a process that dies meanwhile ends here.
func (p *process) sleep(d time.Duration) {
	if !clock.Sleep(p.Clock, d, p.over) {
		runtime.Goexit()
	}
}

// die ends the process, as all other processes see it.
func (p *process) die() {
	if p.Dead {
		return
	}
	p.w.record.mark(p, "death", "dies")
	p.Die()
	p.w.judge.died(p)
	close(p.over)
}

// pause stops the process for d; its clocks continue.
func (p *process) pause(d time.Duration) {
	if p.Dead {
		return
	}
	p.w.record.mark(p, "stop", "is frozen")
	p.w.record.span(p, "paused", p.w.Now(), p.w.Now()+d)
	p.Pause(d, false, func() {
		if p.Paused == 0 {
			p.w.record.mark(p, "resume", "runs again")
		}
	})
}

// bury lets the goroutines of a process end: from now on every command fails immediately.
func (p *process) bury() {
	if !p.Dead {
		close(p.over)
	}
	p.Bury(func() {
		p.end()
		p.mu.Lock()
		open := p.open
		p.open = nil
		p.mu.Unlock()
		for _, c := range open {
			c.finish(errUnreachable)
		}
	})
}
