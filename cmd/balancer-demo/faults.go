package main

import (
	"context"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
)

// faults injects failures into a demo. First it kills the process that holds the lock. Later it
// stops the holder for one and a half takeover times. If the process has already released the lock,
// the fault does not count and is repeated.
type faults struct {
	d        *demo
	plan     []fault       // in the order of injection
	resumeAt time.Duration // since the start; 0 without a stopped process
}

// A fault is a planned kill or stop of the process that holds the lock.
type fault struct {
	kind     string // kill or stop
	after    int    // the number of rounds before the fault
	process  string // the id of the hit process; empty before the fault
	number   int
	survived bool
}

func newFaults(d *demo) *faults {
	f := &faults{d: d}
	switch {
	case d.o.noFaults:
	case d.o.processes == 1:
		d.say(0, "start", "no faults with a single balancer: no other balancer could take over")
	case !canStop:
		d.say(0, "start", "no process is stopped: this system cannot stop and continue a process")
		f.plan = []fault{{kind: "kill", after: 6}}
	default:
		f.plan = []fault{{kind: "kill", after: 6}, {kind: "stop", after: 14}}
	}
	return f
}

// next returns the first fault that the balancers have not survived yet, or nil.
func (f *faults) next() *fault {
	for i := range f.plan {
		if !f.plan[i].survived {
			return &f.plan[i]
		}
	}
	return nil
}

// note handles an event of a balancer. It may inject the next fault, or record that the balancers
// have survived a fault.
func (f *faults) note(ctx context.Context, e balancer.Event) {
	one := f.next()
	if one == nil {
		return
	}
	switch {
	case one.process == "":
		if e.Kind == balancer.Entered && f.d.rounds >= one.after {
			f.harm(ctx, one, e)
		}
	case e.Kind == balancer.TookOver && one.kind == "kill":
		one.survived = true
		f.d.say(e.Number, "survived", "the lock of the killed holder was taken over")
	case e.Kind == balancer.LostLock && one.kind == "stop" && e.Number == one.number && f.resumeAt == 0:
		one.survived = true
		f.d.say(e.Number, "survived", "the stopped holder detected the loss of its lock and "+
			"stopped working")
	}
}

// harm kills or stops the process that sent the event e. The fault counts only if the process still
// held the lock.
func (f *faults) harm(ctx context.Context, one *fault, e balancer.Event) {
	p := f.d.processes[e.Number-1]
	if p.cmd.Process.Pid != e.PID {
		return // an earlier process with this number sent the event
	}
	text := "the holder was killed (SIGKILL)"
	if one.kind == "kill" {
		p.kill()
	} else {
		text = "the holder was stopped (SIGSTOP)"
		stop(p)
		f.resumeAt = f.d.since() + f.d.o.takeover*3/2
	}
	lock, err := f.d.meta.catalog.Read(ctx, balancer.LockName)
	if err != nil || !lock.Held || lock.Process != e.Process {
		f.d.say(e.Number, one.kind, "missed: it no longer held the lock; trying again")
		f.resumeAt = 0
		resume(p)
		return
	}
	one.process, one.number = e.Process, e.Number
	f.d.say(e.Number, one.kind, "%s fence=%d", text, lock.Fence)
}

// tick continues the stopped process once the time f.resumeAt has passed.
func (f *faults) tick() {
	if f.resumeAt > 0 && f.d.since() >= f.resumeAt {
		f.resumeAt = 0
		number := f.next().number
		resume(f.d.processes[number-1])
		f.d.say(number, "resume", "the stopped balancer continues (SIGCONT)")
	}
}
