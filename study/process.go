package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/test/virtual"
)

// errUnreachable means that the command was not carried out. After errNoReply or errLimit, the
// command may have been carried out.
var (
	errUnreachable = errors.New("no server can be reached")
	errNoReply     = errors.New("no reply arrived")
	errLimit       = fmt.Errorf("%w in time", errNoReply)
)

// A process is a participant of a play. It has a clock, a connection to the server, and a lock
// manager of the played generation. Only the event loop of the world uses its fields.
type process struct {
	*virtual.Process
	w      *world
	name   string
	starts time.Duration
	role   string
	host   string
	port   int
	jobs   []*job
	wait   *wait         // the latest
	limit  time.Duration // longest wait for a reply; 0 for no limit, as before 3.2
	pace   time.Duration // pause between tries if the lock has no pause; 0 for the balancer's pause
	locks  manager

	died   time.Duration // 0 while it lives
	cut    bool          // from the server at present
	counts map[Kind]int

	ctx context.Context // ends when the process is buried
	end context.CancelFunc
}

// Roles of a process that is not a mongos: a config server of 3.4 or later, or the primary of a
// shard of 5.0 or later.
const configServer, shard = "config-server", "shard"

func (p *process) now() time.Time { return p.Clock.Now().Wall }

func (p *process) begin() {
	p.w.record.mark(p, "start", "starts")
	p.Go(func() {
		p.locks.start()
		for _, j := range p.jobs {
			p.Go(func() { j.run(p) })
		}
	})
}

// sleep waits for d. If the process is buried meanwhile, the goroutine of the caller ends.
func (p *process) sleep(d time.Duration) {
	if !clock.Sleep(p.Clock, d, p.ctx.Done()) {
		runtime.Goexit()
	}
}

// await waits for a signal. If the process is buried meanwhile, the goroutine of the caller ends.
func (p *process) await(signal <-chan struct{}) {
	select {
	case <-signal:
	case <-p.ctx.Done():
		runtime.Goexit()
	}
}

func (p *process) die() {
	if p.Dead {
		return
	}
	p.w.record.mark(p, "death", "dies")
	p.died = p.w.Now()
	p.Die()
}

// pause stops the process for d. Its clocks continue.
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
