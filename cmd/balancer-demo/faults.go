package main

import (
	"context"
	"slices"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
)

// The demo waits for this number of rounds before each fault, so that the fault interrupts work.
const (
	killAfter = 6
	stopAfter = 14
)

// faults is the demo's fault injector. It kills one holder. It stops another until its deadline has
// passed, and then continues it. If a process did not hold the lock when it was hit, faults tries
// again.
type faults struct {
	d          *demo
	kill, stop fault
	resumeAt   time.Duration // since the start; 0 before the takeover from the stopped process
	resumed    bool
}

// A fault is the killing or the stopping of a process that held the lock.
type fault struct {
	kind     string
	planned  bool
	process  string // the process that was hit; empty before
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
	return &faults{d: d, kill: fault{kind: "kill", planned: harm},
		stop: fault{kind: "stop", planned: harm && canStop}}
}

// planned returns the planned faults for the report.
func (f *faults) planned() []fault {
	return slices.DeleteFunc([]fault{f.kill, f.stop}, func(one fault) bool { return !one.planned })
}

func (f *faults) over() bool { return !slices.ContainsFunc(f.planned(), fault.open) }

func (f fault) open() bool { return !f.survived }

// note updates the faults after an event.
func (f *faults) note(ctx context.Context, e balancer.Event) {
	switch e.Kind {
	case balancer.Entered:
		f.harm(ctx, e)
	case balancer.TookOver:
		if f.kill.process != "" && !f.kill.survived {
			f.kill.survived = true
			f.d.say(e.Number, "survived", "the lock of the killed holder was taken over")
		} else if f.stop.process != "" && e.Process != f.stop.process {
			f.resumeAt = f.d.since() + f.d.o.takeover/4
		}
	case balancer.LostLock:
		if e.Number == f.stop.number && f.resumeAt > 0 {
			f.stop.survived = true
			f.d.say(e.Number, "survived", "the stopped holder found its lock lost and stopped working")
		}
	}
}

// harm injects the planned fault into the process that has just entered a round.
func (f *faults) harm(ctx context.Context, e balancer.Event) {
	p := f.d.processes[e.Number-1]
	if p.cmd.Process.Pid != e.PID {
		return // the event is from a predecessor
	}
	switch {
	case f.kill.planned && f.kill.process == "" && f.d.ledger.rounds >= killAfter:
		p.kill()
		f.hit(ctx, &f.kill, e, "the holder was killed (SIGKILL)")
	case f.stop.planned && f.stop.process == "" && f.kill.survived && f.d.ledger.rounds >= stopAfter:
		stop(p)
		if !f.hit(ctx, &f.stop, e, "the holder was stopped (SIGSTOP)") {
			resume(p)
		}
	}
}

// hit reports whether the process held the lock when it was harmed. Otherwise the fault does not
// count.
func (f *faults) hit(ctx context.Context, which *fault, e balancer.Event, text string) bool {
	lock, err := f.d.meta.catalog.Read(ctx, balancer.LockName)
	if err != nil || !lock.Held || lock.Process != e.Process {
		f.d.say(e.Number, which.kind, "missed: it did not hold the lock any more; trying again")
		return false
	}
	which.process, which.number, which.at = e.Process, e.Number, f.d.since()
	f.d.say(e.Number, which.kind, "%s fence=%d", text, lock.Fence)
	return true
}

// tick continues the stopped process once another process has taken over the lock and used it.
func (f *faults) tick() {
	if f.resumeAt > 0 && f.d.since() >= f.resumeAt && !f.resumed {
		f.resumed = true
		resume(f.d.processes[f.stop.number-1])
		f.d.say(f.stop.number, "resume", "the stopped balancer goes on (SIGCONT)")
	}
}
