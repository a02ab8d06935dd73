package simulation

import (
	"math"
	"slices"
	"time"
)

// This file checks that every call returns when its context is done or its time limit is reached.

// promptly is the largest allowed delay of a return. In virtual time only waits take time.
const promptly = 20 * time.Millisecond

// endContexts ends the contexts of all open calls of a process.
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

// returnInTime checks every open call, and every Close that a fault called.
func (o *oracle) returnInTime() {
	if o.w.done.Failed() {
		return
	}
	var by time.Duration
	late := func(a *attempt) bool {
		by = o.overdue(a)
		return by > promptly
	}
	if a := o.attempt(late); a != nil {
		o.violated("prompt", "a call for %q of %s goes on %v after its time was up", a.name, a.p, by)
	}
	for _, p := range o.w.lives {
		if p.closing != nil && !p.closing.seen && !p.Dead && p.Paused == 0 {
			o.closesInTime(p, p.closing)
		}
	}
}

// overdue returns the time by which an open call is late.
func (o *oracle) overdue(a *attempt) time.Duration {
	now, by := o.w.Now(), time.Duration(math.MinInt64)
	if a.p.Dead || a.p.Paused > 0 {
		return by
	}
	if a.ended > 0 {
		by = now - a.ended
	}
	if a.limit > 0 {
		by = max(by, a.p.Clock.Now().Mono-a.limit)
	}
	return min(by, now-a.p.Resumed)
}

// closesInTime checks a Close that a fault called. It must return once its context ends, or after
// one try if it was already done. After it no lock may name the process, unless a fault has struck
// or an old state hid a session from it.
func (o *oracle) closesInTime(p *process, c *closing) {
	late := o.w.Now() - c.since - c.limit
	if c.limit == 0 { // Close limits itself by its own clock
		late = p.Clock.Now().Mono - c.mono - o.w.s.Timing.Limit
	}
	done := p.over()
	if by := min(late, o.w.Now()-p.Resumed); !done && by > promptly {
		c.seen = true
		o.violated("prompt", "Close of %s goes on %v after its time was up", p, by)
	}
	// After the end of its context Close tries the rest once more.
	tries := c.since + o.w.s.Timing.Limit + time.Second
	if !done || c.err != nil && o.w.Now() < tries && !o.w.healed {
		return
	}
	c.seen = true
	c.excused = c.err != nil && max(o.troubled[p], p.disturbed()) > c.since || p.misled >= c.since
	if c.excused {
		return
	}
	for _, name := range o.asked() {
		if l, _ := o.w.store.lock(name); len(o.partiesBy(l, p)) > 0 {
			o.violated("I8", "%s has closed (%v), and %q still names it", p, c.err, name)
		}
	}
}
