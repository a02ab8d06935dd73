package simulation

import (
	"context"
	"fmt"
	"time"

	"mongodlm/internal/test/fault"
)

// An armed fault strikes only once.
type armed struct {
	Fault
	used bool
}

// arm adds the faults that need no command to the agenda and keeps the other faults.
func (w *world) arm(faults []Fault) {
	for _, f := range faults {
		if !f.Kind.onCall() && f.Call == 0 && f.Op == "" {
			w.After(f.At, func() {
				if !w.healed {
					w.strike(f)
				}
			})
			continue
		}
		w.faults = append(w.faults, &armed{Fault: f})
	}
}

// strikes returns the faults that strike a command, and marks them as used.
func (w *world) strikes(c *call) []Fault {
	var found []Fault
	for _, f := range w.faults {
		hit := !f.used && !w.healed && f.Process == c.p.Index && c.p.life == 1
		switch {
		case !hit:
		case f.Call > 0:
			hit = f.Call == c.n
		default:
			hit = (f.Op == "" || f.Op == c.op) && w.Now() >= f.At
		}
		if hit {
			f.used = true
			found = append(found, f.Fault)
		}
	}
	return found
}

// A course is the fate of one command.
type course struct {
	request, reply time.Duration // times in transit
	never          error         // the answer if the store never gets the command
	lose           bool
	late           bool
	again          time.Duration // delay of a second copy; 0 for no copy
	crash          bool
	pause          time.Duration
}

// admit chooses the course of a command that was sent.
func (w *world) admit(c *call) {
	p := c.p
	p.mu.Lock()
	c.admitted = !c.expired.Load()
	p.mu.Unlock()
	if !c.admitted || c.answered || p.Buried() {
		c.finish(fault.Refused(c.op))
		return
	}
	c.number()
	w.judge.sent(c)
	k := w.course(c)
	switch {
	case k.crash:
		p.crash()
	case k.pause > 0:
		p.pause(k.pause, false)
		p.WhenRunning(func() { w.carryOut(c, k) })
	default:
		w.carryOut(c, k)
	}
}

func (w *world) course(c *call) course {
	p, now := c.p, w.Now()
	var k course
	if w.s.Seed != 0 && !p.Buried() {
		k.request = time.Duration(w.chance("request", now, uint64(p.Index))%5000) * time.Microsecond
		k.reply = time.Duration(w.chance("reply", now, uint64(p.Index))%5000) * time.Microsecond
	}
	k.lose = now < p.deaf
	k.request += max(0, p.hang-now)
	if now < p.cut {
		k.never = fault.Refused(c.op)
	}
	if now < max(p.cut, p.deaf, p.hang) {
		w.judge.trouble(p)
		p.struck++
	}
	if now < p.old && c.mayBeOld {
		p.misled = now
		c.old = &p.then
		c.note += " [old primary]"
	}
	for _, f := range w.strikes(c) {
		w.judge.trouble(p)
		p.struck++
		c.note += fmt.Sprintf(" [%s %v]", f.Kind, f.For)
		w.bend(c, f, &k)
	}
	return k
}

// bend applies a fault to the course of a command.
func (w *world) bend(c *call, f Fault, k *course) {
	if !f.Kind.onCall() {
		w.strike(f)
		return
	}
	w.done.Stats[string(f.Kind)]++
	switch f.Kind {
	case DelayRequest:
		k.request += f.For
	case DelayReply:
		k.reply += f.For
	case Refuse:
		k.never = fault.Refused(c.op)
	case Drop:
		k.never = c.lost()
	case LoseReply:
		k.lose = true
	case ApplyLate:
		k.late = true
		k.request += f.For
	case Duplicate:
		k.again = max(f.For, 1)
	case StaleRead:
		if c.mayBeOld {
			c.p.misled = w.Now()
			c.old = &oldState{max(0, w.Now()-f.For), w.PrimaryName()}
		}
	case CrashBefore:
		k.crash = true
	case PauseBefore:
		k.pause = f.For
	}
}

// carryOut runs a command on its course. The process waits no longer than the time limit of a
// command. The store applies a slower command later.
func (w *world) carryOut(c *call, k course) {
	p, limit := c.p, w.s.Timing.Limit
	if k.request+k.reply > limit {
		w.At(w.Now()+limit, p.Index, func() { c.reply(c.timeout(context.DeadlineExceeded)) })
	}
	if k.never != nil {
		w.At(w.Now()+k.request, p.Index, func() { c.reply(k.never) })
		return
	}
	if k.late {
		w.At(w.Now(), p.Index, func() { c.reply(c.lost()) })
	}
	if k.again > 0 && c.writes {
		w.At(w.Now()+k.request+k.again, p.Index, func() { w.applyAgain(c) })
	}
	inTime := !k.late && k.request <= limit
	if inTime {
		w.underWay++
	}
	w.At(w.Now()+k.request, p.Index, func() { w.arrive(c, k, inTime) })
}

// arrive executes a command on the store, and answers it.
func (w *world) arrive(c *call, k course, inTime bool) {
	p := c.p
	if w.blocked(c) {
		w.At(w.Now()+inDoubt, p.Index, func() { w.arrive(c, k, inTime) })
		return
	}
	if inTime {
		w.underWay--
	}
	if c.blocked && w.Now() > c.sent+k.request+w.s.Timing.Limit {
		return // the server has given the command up
	}
	err := c.carry()
	if k.lose {
		err = c.lost()
	}
	w.At(w.Now()+k.reply, p.Index, func() { c.reply(err) })
}

// blocked reports whether a write must wait for a transaction. Its sender waits no longer than the
// time limit of a command.
func (w *world) blocked(c *call) bool {
	if !c.writes || c.inside != nil || !w.Server.Busy(c.subject) {
		return false
	}
	if !c.blocked {
		c.blocked = true
		limit := w.s.Timing.Limit - 10*time.Millisecond // see distlock's grace
		w.At(max(w.Now(), c.sent+limit), c.p.Index, func() {
			if !c.answered {
				w.judge.troubled[c.p] = w.Now()
			}
			c.reply(c.timeout(context.DeadlineExceeded))
		})
	}
	return true
}

// applyAgain applies a copy of a command and drops its reply.
func (w *world) applyAgain(c *call) {
	if w.blocked(c) {
		w.At(w.Now()+inDoubt, c.p.Index, func() { w.applyAgain(c) })
		return
	}
	if c.inside != nil {
		return // a transaction numbers its commands
	}
	w.log.add("a copy of %s of %q arrives", c.who(), c.subject)
	if w.healed { // perhaps after the last search of a process that closes
		w.judge.posthumous[c.ts] = true
	}
	_ = c.carry() // the process has the outcome of the first copy
}

// strike applies a fault that needs no command.
func (w *world) strike(f Fault) {
	p := w.slots[f.Process]
	now := w.Now()
	if p == nil || f.Kind.ofProcess() && p.over() != (f.Kind == Restart) {
		return // the fault has no process to strike
	}
	w.done.Stats[string(f.Kind)]++
	w.log.add("fault: %+v", f)
	w.judge.trouble(p)
	switch f.Kind {
	case Crash:
		p.crash()
	case Restart:
		w.launch(f.Process)
	case Pause:
		p.pause(f.For, false)
	case Suspend:
		p.pause(f.For, true)
	case Cut:
		p.cut = max(p.cut, now+f.For)
	case Deaf:
		p.deaf = max(p.deaf, now+f.For)
	case Hang:
		p.hang = max(p.hang, now+f.For)
	case OldPrimary:
		p.old, p.then = now+f.For, oldState{now, w.PrimaryName()}
	case StepWall:
		p.Clock.Step(f.For)
	case StepServer:
		w.StepServer(f.For)
	case EndContexts:
		w.judge.endContexts(p)
	case Close:
		p.close(f.For)
	case Sever:
		w.After(f.For, func() { w.breakStreams(p) })
	case Elect:
		w.breakStreams(nil)
		w.Elect(f.For)
	case RemoveFree:
		w.store.removeFree()
	}
}
