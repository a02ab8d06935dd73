package main

import (
	"context"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
)

// A faults injects the faults of a demo. It kills a holder of the lock. Later it stops a holder,
// and continues that process after another takeover. If a process had released the lock just before
// its fault, the fault is injected again.
type faults struct {
	d        *demo
	plan     []fault       // in their order
	resumeAt time.Duration // since the start; 0 before the takeover from the stopped process
	resumed  bool
}

// A fault is a kill or a stop of a process that held the lock.
type fault struct {
	kind     string // kill or stop
	after    int    // it waits for this number of rounds, so that it interrupts work
	process  string // the process that was hit; empty before
	number   int
	at       time.Duration
	survived bool
}

func newFaults(d *demo) *faults {
	f := &faults{d: d}
	switch {
	case d.o.noFaults:
	case d.o.processes == 1:
		d.say(0, "start", "no faults with a single balancer: no other could take over")
	case !canStop:
		d.say(0, "start", "no process is stopped: this system cannot stop and continue one")
		f.plan = []fault{{kind: "kill", after: 6}}
	default:
		f.plan = []fault{{kind: "kill", after: 6}, {kind: "stop", after: 14}}
	}
	return f
}

func (f fault) open() bool { return !f.survived }

// next returns the first fault that is not survived, or nil.
func (f *faults) next() *fault {
	for i := range f.plan {
		if f.plan[i].open() {
			return &f.plan[i]
		}
	}
	return nil
}

// note injects the next fault after an event, or records that a fault was survived.
func (f *faults) note(ctx context.Context, e balancer.Event) {
	one := f.next()
	if one == nil {
		return
	}
	switch {
	case one.process == "":
		if e.Kind == balancer.Entered && f.d.ledger.rounds >= one.after {
			f.harm(ctx, one, e)
		}
	case e.Kind == balancer.TookOver && one.kind == "kill":
		one.survived = true
		f.d.say(e.Number, "survived", "the lock of the killed holder was taken over")
	case e.Kind == balancer.TookOver && e.Process != one.process:
		f.resumeAt = f.d.since() + f.d.o.takeover/4
	case e.Kind == balancer.LostLock && e.Number == one.number && f.resumed:
		one.survived = true
		f.d.say(e.Number, "survived", "the stopped holder found its lock lost and stopped working")
	}
}

// harm injects a fault into the process that has just entered a round. The fault counts only if the
// process held the lock.
func (f *faults) harm(ctx context.Context, one *fault, e balancer.Event) {
	p := f.d.processes[e.Number-1]
	if p.cmd.Process.Pid != e.PID {
		return // the event is from a predecessor
	}
	text := "the holder was killed (SIGKILL)"
	if one.kind == "kill" {
		p.kill()
	} else {
		text = "the holder was stopped (SIGSTOP)"
		stop(p)
	}
	lock, err := f.d.meta.catalog.Read(ctx, balancer.LockName)
	if err != nil || !lock.Held || lock.Process != e.Process {
		f.d.say(e.Number, one.kind, "missed: it did not hold the lock any more; trying again")
		resume(p)
		return
	}
	one.process, one.number, one.at = e.Process, e.Number, f.d.since()
	f.d.say(e.Number, one.kind, "%s fence=%d", text, lock.Fence)
}

// tick continues the stopped process a while after another process has taken over the lock.
func (f *faults) tick() {
	one := f.next()
	if one != nil && f.resumeAt > 0 && f.d.since() >= f.resumeAt && !f.resumed {
		f.resumed = true
		resume(f.d.processes[one.number-1])
		f.d.say(one.number, "resume", "the stopped balancer goes on (SIGCONT)")
	}
}
