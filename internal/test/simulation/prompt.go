package simulation

import (
	"math"
	"slices"
	"time"
)

// maxDelay is the longest allowed delay of a return. It can be short, because computing takes no
// virtual time.
const maxDelay = 20 * time.Millisecond

func (o *oracle) endContexts(p *process) {
	o.mu.Lock()
	open := slices.Clone(o.attempts)
	o.mu.Unlock()
	for _, a := range open {
		if a.p == p && a.cancel != nil {
			a.cancel()
		}
	}
}

// checkReturns checks that open attempts and calls of Close are not late.
func (o *oracle) checkReturns() {
	if o.w.done.Failed() {
		return
	}
	var by time.Duration
	late := func(a *attempt) bool {
		by = o.overdue(a)
		return by > maxDelay
	}
	if a := o.attempt(late); a != nil {
		o.violated("prompt", "a call for %q of %s is %v late", a.name, a.p, by)
	}
	for _, p := range o.w.processes {
		if p.closing != nil && !p.closing.seen && !p.Dead && p.Paused == 0 {
			o.checkClose(p, p.closing)
		}
	}
}

// overdue returns the time for which an open attempt is late. The time is negative if the attempt
// is not late.
func (o *oracle) overdue(a *attempt) time.Duration {
	by := time.Duration(math.MinInt64)
	if a.p.Dead || a.p.Paused > 0 || a.ended == 0 && a.limit == 0 {
		return by
	}
	now := o.w.Now()
	if a.ended > 0 {
		by = now - a.ended
	}
	if a.limit > 0 {
		by = max(by, a.p.Clock.Now().Mono-a.limit)
	}
	return min(by, now-a.p.Resumed)
}

// checkClose checks a call of Close. Close must return when its context ends. If the context has
// ended before the call, Close must return within the time limit of one command. After Close, no
// lock may name the process, unless a fault may have prevented the release.
func (o *oracle) checkClose(p *process, c *closing) {
	late := o.w.Now() - c.since - c.limit
	if c.limit == 0 { // Close sets the time limit itself, by the clock of the process
		late = p.Clock.Now().Mono - c.mono - o.w.s.Timing.Limit
	}
	done := p.over()
	if by := min(late, o.w.Now()-p.Resumed); !done && by > maxDelay {
		c.seen = true
		o.violated("prompt", "Close of %s is %v late", p, by)
	}
	// After the end of its context, Close tries once more to release the remaining locks.
	tries := c.since + o.w.s.Timing.Limit + time.Second
	if !done || c.err != nil && o.w.Now() < tries && !o.w.faultsOver {
		return
	}
	c.seen = true
	c.excused = c.err != nil && max(o.lastFaultOf[p], p.faultsEnd()) > c.since ||
		p.lastOldRead >= c.since
	if c.excused {
		return
	}
	for _, name := range o.lockNames() {
		if l, _ := o.w.store.lock(name); len(o.partiesBy(l, p)) > 0 {
			o.violated("I8", "%s has closed (%v), but %q still names it", p, c.err, name)
		}
	}
}
