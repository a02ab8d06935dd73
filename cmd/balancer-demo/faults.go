package main

import (
	"context"
	"fmt"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/view"
)

// The rounds after which the demo begins to do harm, so that there is something to interrupt.
const (
	killAfter = 6
	stopAfter = 14
)

// faults is the script of the harm the demo does: the holder is killed once, and another holder is
// stopped past its deadline and continued once. Each fault must hit a process that really holds
// the lock; a miss is tried again.
type faults struct {
	d     *demo
	kill  fault
	stop  fault
	wait  time.Duration // since the begin of the demo: continue the stopped one no earlier
	taken bool          // the stopped one's lock was taken over
}

// fault is one harm: planned, done to a process, survived.
type fault struct {
	planned  bool
	process  string // hit, empty before
	number   int
	at       time.Duration
	survived bool
}

func newFaults(d *demo) *faults {
	harm := !d.o.noFaults && d.o.processes > 1
	if !d.o.noFaults && !harm {
		d.say(0, "start", "no faults with a single balancer: no other could take over")
	}
	if harm && !canStop {
		d.say(0, "start", "no process is stopped: this system cannot stop and continue one")
	}
	return &faults{d: d, kill: fault{planned: harm}, stop: fault{planned: harm && canStop}}
}

func (f *faults) over() bool {
	return (!f.kill.planned || f.kill.survived) && (!f.stop.planned || f.stop.survived)
}

// note draws the consequences of an event.
func (f *faults) note(ctx context.Context, e balancer.Event) {
	switch e.Kind {
	case balancer.Entered:
		f.harm(ctx, e)
	case balancer.TookOver:
		if f.kill.process != "" && !f.kill.survived {
			f.kill.survived = true
			f.d.say(e.Number, "survived", "the lock of the killed holder was taken over")
		} else if f.stop.process != "" && e.Process != f.stop.process {
			f.taken = true
			f.wait = f.d.since() + f.d.o.takeover/4
		}
	case balancer.LostLock:
		if e.Number == f.stop.number && f.taken {
			f.stop.survived = true
			f.d.say(e.Number, "survived", "the stopped holder found its lock lost and stopped working")
		}
	}
}

// harm hits the process that has just entered a round, if it is time.
func (f *faults) harm(ctx context.Context, e balancer.Event) {
	p := f.d.processes[e.Number-1]
	if p.pid() != e.PID {
		return // told by a predecessor
	}
	switch {
	case f.kill.planned && f.kill.process == "" && f.d.ledger.rounds >= killAfter:
		p.kill()
		<-p.exited
		f.d.ledger.condition(e.Number, view.Killed)
		f.hit(ctx, &f.kill, e, "kill", "the holder was killed (SIGKILL)")
		time.AfterFunc(restartPause, func() { f.d.restart <- e.Number })
	case f.stop.planned && f.stop.process == "" && f.kill.survived && f.d.ledger.rounds >= stopAfter:
		stop(p)
		if f.hit(ctx, &f.stop, e, "stop", "the holder was stopped (SIGSTOP)") {
			f.d.ledger.condition(e.Number, view.Stopped)
		} else {
			resume(p)
		}
	}
}

// hit reports whether the process held the lock when it was harmed; only then the fault counts.
func (f *faults) hit(ctx context.Context, which *fault, e balancer.Event, kind, text string) bool {
	lock, err := f.d.meta.catalog.Read(ctx, balancer.LockName)
	if err != nil || !lock.Held || lock.Process != e.Process {
		f.d.say(e.Number, kind, "missed: it did not hold the lock any more; trying again")
		return false
	}
	which.process, which.number, which.at = e.Process, e.Number, f.d.since()
	f.d.screen.event(view.Event{
		At: f.d.since(), Balancer: e.Number, Kind: kind, Text: text,
		Fields: []view.Field{{Key: "fence", Value: fmt.Sprint(lock.Fence)}},
	})
	return true
}

// tick continues the stopped process once its lock was taken over and used by another.
func (f *faults) tick() {
	stopped := f.stop.process != "" && f.d.ledger.of(f.stop.number).Condition == view.Stopped
	if !stopped || !f.taken || f.d.since() < f.wait {
		return
	}
	resume(f.d.processes[f.stop.number-1])
	f.d.ledger.condition(f.stop.number, view.Running)
	f.d.say(f.stop.number, "resume", "the stopped balancer goes on (SIGCONT)")
}

// list is the faults for the report.
func (f *faults) list() []view.Fault {
	var all []view.Fault
	add := func(kind string, one fault) {
		if one.planned {
			all = append(all, view.Fault{At: one.at, Kind: kind, Target: one.process,
				Happened: one.process != "", Survived: one.survived})
		}
	}
	add("kill", f.kill)
	add("stop", f.stop)
	return all
}
