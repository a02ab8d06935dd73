package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"mongodlm/internal/test/fault"
)

// planFaults schedules the faults that strike at a fixed time, and stores the faults that strike a
// command.
func (w *world) planFaults(faults []Fault) {
	for _, f := range faults {
		if !f.Kind.onCall() && f.Call == 0 && f.Op == "" {
			w.After(f.At, func() {
				if !w.faultsOver {
					w.inject(f)
				}
			})
			continue
		}
		w.faults = append(w.faults, f)
	}
}

// faultsFor returns the faults that strike a command, and removes them from the stored faults.
func (w *world) faultsFor(c *call) (found []Fault) {
	if w.faultsOver || c.p.generation > 1 {
		return nil
	}
	w.faults = slices.DeleteFunc(w.faults, func(f Fault) bool {
		hit := f.Process == c.p.Index && f.Call == c.n
		if f.Call == 0 {
			hit = f.Process == c.p.Index && (f.Op == "" || f.Op == c.op) && w.Now() >= f.At
		}
		if hit {
			found = append(found, f)
		}
		return hit
	})
	return found
}

// A delivery describes the transit of a command and of its answer, with the effects of faults.
type delivery struct {
	request, reply time.Duration // times in transit
	failure        error         // answer to a command that does not reach the store
	loseReply      bool
	late           bool
	copyAfter      time.Duration // delay of the copy; 0 if there is none
	crash          bool
	pause          time.Duration
}

// admit sends a command, after applying the faults that strike it.
func (w *world) admit(c *call) {
	p := c.p
	p.mu.Lock()
	c.admitted = !c.expired.Load()
	p.mu.Unlock()
	if !c.admitted || c.answered || p.Buried() {
		c.finish(fault.Refused(c.op))
		return
	}
	c.recordSend()
	w.oracle.sent(c)
	k := w.delivery(c)
	switch {
	case k.crash:
		p.crash()
	case k.pause > 0:
		p.pause(k.pause, false)
		p.WhenRunning(func() { w.deliverCall(c, k) })
	default:
		w.deliverCall(c, k)
	}
}

func (w *world) delivery(c *call) delivery {
	p, now := c.p, w.Now()
	var k delivery
	if w.s.Seed != 0 && !p.Buried() {
		k.request = time.Duration(w.chance("request", now, uint64(p.Index))%5000) * time.Microsecond
		k.reply = time.Duration(w.chance("reply", now, uint64(p.Index))%5000) * time.Microsecond
	}
	k.loseReply = now < p.deafUntil
	k.request += max(0, p.hangUntil-now)
	if now < p.cutUntil {
		k.failure = fault.Refused(c.op)
	}
	if now < max(p.cutUntil, p.deafUntil, p.hangUntil) {
		w.oracle.recordFault(p)
		p.faults++
	}
	if now < p.oldUntil && c.mayBeOld {
		p.lastOldRead = now
		c.old = &p.oldPrimary
		c.note += " [old primary]"
	}
	for _, f := range w.faultsFor(c) {
		w.oracle.recordFault(p)
		p.faults++
		c.note += fmt.Sprintf(" [%s %v]", f.Kind, f.For)
		w.addFault(c, f, &k)
	}
	return k
}

func (w *world) addFault(c *call, f Fault, k *delivery) {
	if !f.Kind.onCall() {
		w.inject(f)
		return
	}
	w.done.Stats[string(f.Kind)]++
	switch f.Kind {
	case DelayRequest:
		k.request += f.For
	case DelayReply:
		k.reply += f.For
	case Refuse:
		k.failure = fault.Refused(c.op)
	case Drop:
		k.failure = c.lost()
	case LoseReply:
		k.loseReply = true
	case ApplyLate:
		k.late = true
		k.request += f.For
	case Duplicate:
		k.copyAfter = max(f.For, 1)
	case StaleRead:
		if c.mayBeOld {
			c.p.lastOldRead = w.Now()
			c.old = &oldState{max(0, w.Now()-f.For), w.PrimaryName()}
		}
	case CrashBefore:
		k.crash = true
	case PauseBefore:
		k.pause = f.For
	}
}

// deliverCall delivers a command to the store. When the time limit of a command has passed, the
// process stops waiting. The store still applies the command when it arrives.
func (w *world) deliverCall(c *call, k delivery) {
	p, limit := c.p, w.s.Timing.Limit
	if k.request+k.reply > limit {
		w.At(w.Now()+limit, p.Index, func() { c.reply(c.timeout(context.DeadlineExceeded)) })
	}
	if k.failure != nil {
		w.At(w.Now()+k.request, p.Index, func() { c.reply(k.failure) })
		return
	}
	if k.late {
		w.At(w.Now(), p.Index, func() { c.reply(c.lost()) })
	}
	if k.copyAfter > 0 && c.writes {
		w.At(w.Now()+k.request+k.copyAfter, p.Index, func() { w.applyAgain(c) })
	}
	inTime := !k.late && k.request <= limit
	if inTime {
		w.underWay++
	}
	w.At(w.Now()+k.request, p.Index, func() { w.arrive(c, k, inTime) })
}

func (w *world) arrive(c *call, k delivery, inTime bool) {
	p := c.p
	if w.blocked(c) {
		w.At(w.Now()+retryPause, p.Index, func() { w.arrive(c, k, inTime) })
		return
	}
	if inTime {
		w.underWay--
	}
	if c.blocked && w.Now() > c.sent+k.request+w.s.Timing.Limit {
		return // the server has dropped the command
	}
	err := c.execute()
	if k.loseReply {
		err = c.lost()
	}
	w.At(w.Now()+k.reply, p.Index, func() { c.reply(err) })
}

// blocked reports whether a write must wait for a transaction. The sender stops waiting when the
// time limit of a command has passed.
func (w *world) blocked(c *call) bool {
	if !c.writes || c.transaction != nil || !w.Server.Busy(c.subject) {
		return false
	}
	if !c.blocked {
		c.blocked = true
		limit := time.Duration(float64(w.s.Timing.Limit)/cmp.Or(c.p.spec.Rate, 1)) - 10*time.Millisecond
		w.At(max(w.Now(), c.sent+limit), c.p.Index, func() {
			if !c.answered {
				w.oracle.lastFaultOf[c.p] = w.Now()
			}
			c.reply(c.timeout(context.DeadlineExceeded))
		})
	}
	return true
}

// applyAgain executes a copy of a command. No process gets the reply.
func (w *world) applyAgain(c *call) {
	if w.blocked(c) {
		w.At(w.Now()+retryPause, c.p.Index, func() { w.applyAgain(c) })
		return
	}
	if c.transaction != nil {
		return // the server applies a command of a transaction once only
	}
	w.log.add("a copy of %s of %q arrives", c.who(), c.subject)
	if w.faultsOver { // a closing process may have ended its search for sessions
		w.oracle.tooLate[c.ts], w.oracle.tooLate[c.entering()] = true, true
	}
	_ = c.execute() // the process has the outcome of the first copy
}

func (w *world) inject(f Fault) {
	p := w.slots[f.Process]
	now := w.Now()
	if p == nil || f.Kind.ofProcess() && p.over() != (f.Kind == Restart) {
		return // there is no process that the fault can strike
	}
	w.done.Stats[string(f.Kind)]++
	w.log.add("fault: %+v", f)
	w.oracle.recordFault(p)
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
		p.cutUntil = max(p.cutUntil, now+f.For)
	case Deaf:
		p.deafUntil = max(p.deafUntil, now+f.For)
	case Hang:
		p.hangUntil = max(p.hangUntil, now+f.For)
	case OldPrimary:
		p.oldUntil, p.oldPrimary = now+f.For, oldState{now, w.PrimaryName()}
	case StepWall:
		p.Clock.Step(f.For)
	case StepServer:
		w.StepServer(f.For)
	case EndContexts:
		w.oracle.endContexts(p)
	case Close:
		p.close(f.For)
	case Sever:
		w.After(f.For, func() { w.severStreams(p) })
	case Elect:
		w.severStreams(nil)
		w.Elect(f.For)
	case RemoveFree:
		w.store.removeFree()
	}
}
