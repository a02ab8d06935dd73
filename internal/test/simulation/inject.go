package simulation

import (
	"context"
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
		case f.Nth > 0:
			hit = f.Op == c.op && f.Nth == c.opN
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
	refuse         bool
	drop           bool
	lose           bool
	late           bool
	again          time.Duration // delay of a second copy; 0 for no copy
	crashBefore    bool
	crashAfter     bool
	pauseBefore    time.Duration
	pauseAfter     time.Duration
}

// admit chooses the course of a command that was sent.
func (w *world) admit(c *call) {
	p := c.p
	p.mu.Lock()
	c.admitted = !c.expired.Load()
	admitted := c.admitted
	p.mu.Unlock()
	if !admitted || c.answered || p.Buried() {
		c.finish(fault.Refused(c.op))
		return
	}
	p.calls++
	p.opCalls[c.op]++
	c.n, c.opN, c.sent = p.calls, p.opCalls[c.op], w.Now()
	w.judge.sent(c)
	k := w.course(c)
	switch {
	case k.crashBefore:
		p.crash()
	case k.pauseBefore > 0:
		p.pause(k.pauseBefore, false)
		k.pauseBefore = 0
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
	k.refuse, k.lose = now < p.cut, now < p.deaf
	k.request += max(0, p.hang-now)
	if k.refuse || k.lose || now < p.hang {
		w.judge.trouble(p)
		p.struck++
	}
	if now < p.old && c.mayBeOld {
		p.misled = now
		c.picture = &picture{p.oldSince, p.oldName}
		c.note = "old primary"
	}
	for _, f := range w.strikes(c) {
		w.done.Faults[f.Kind]++
		w.judge.trouble(p)
		p.struck++
		c.note = f.Kind.String()
		w.bend(c, f, &k)
	}
	return k
}

// bend applies a fault to the course of a command.
func (w *world) bend(c *call, f Fault, k *course) {
	switch f.Kind {
	case DelayRequest:
		k.request += f.For
	case DelayReply:
		k.reply += f.For
	case Refuse:
		k.refuse = true
	case Drop:
		k.drop = true
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
			c.picture = &picture{max(0, w.Now()-f.For), ""}
		}
	case CrashBefore:
		k.crashBefore = true
	case CrashAfter:
		k.crashAfter = true
	case PauseBefore:
		k.pauseBefore = f.For
	case PauseAfter:
		k.pauseAfter = f.For
	default:
		w.done.Faults[f.Kind]-- // strike counts it
		w.strike(f)
	}
}

// carryOut runs a command on its course. The process waits no longer than the time limit of a
// command. The store applies a slower command later.
func (w *world) carryOut(c *call, k course) {
	p, limit := c.p, w.s.Timing.Limit
	if c.op != opWrite && k.request+k.reply > limit {
		w.At(w.Now()+limit, p.Index, func() { c.reply(c.timeout(context.DeadlineExceeded)) })
	}
	switch {
	case k.refuse:
		w.At(w.Now()+k.request, p.Index, func() { c.reply(fault.Refused(c.op)) })
		return
	case k.drop:
		w.At(w.Now()+k.request, p.Index, func() { c.reply(c.lost()) })
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
	if w.s.Trace && (k.late || k.request+k.reply > 0 && c.note != "") {
		w.log.applied(c, err)
	}
	if k.lose {
		err = c.lost()
	}
	if k.crashAfter {
		p.crash()
	}
	if k.pauseAfter > 0 {
		p.pause(k.pauseAfter, false)
	}
	if k.reply > 0 {
		w.At(w.Now()+k.reply, p.Index, func() { c.reply(err) })
		return
	}
	c.reply(err)
}

// blocked reports whether a write must wait for a transaction. Its sender waits no longer than the
// time limit of a command.
func (w *world) blocked(c *call) bool {
	if !c.writes || c.inside != nil || c.op == opWrite || !w.Server.Busy(c.subject) {
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
	err := c.carry()
	if w.s.Trace {
		w.log.add("a copy of %s of %q is applied: %s", c.who(), c.subject, c.answer(err))
	}
}

// strike applies a fault that needs no command.
func (w *world) strike(f Fault) {
	p := w.slots[f.Process]
	now := w.Now()
	if p == nil || f.Kind.ofProcess() && p.over() != (f.Kind == Restart) {
		return // the fault has no process to strike
	}
	w.done.Faults[f.Kind]++
	w.log.add("fault: %s", f)
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
		p.old, p.oldSince, p.oldName = now+f.For, now, w.PrimaryName()
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
		w.judge.elected()
	case RemoveFree:
		w.removeFree()
	}
}
