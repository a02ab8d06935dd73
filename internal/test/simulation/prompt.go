package simulation

import (
	"cmp"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// This file checks that every call returns when its context is done or its time limit is reached.

// promptly is the largest allowed delay of a return. In virtual time only waits take time.
const promptly = 20 * time.Millisecond

func (o *oracle) contextEnded(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.ended == 0 {
		a.ended = max(o.w.Now(), 1)
	}
	o.soonest = 0
	o.w.Poke()
}

// endContexts ends the contexts of all open calls of a process.
func (o *oracle) endContexts(p *process) {
	o.mu.Lock()
	var cancels []func()
	for _, a := range o.attempts[p] {
		cancels = append(cancels, a.cancel)
	}
	o.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
}

// A lateCall is a call that has not returned in time, and its delay.
type lateCall struct {
	a  *attempt
	by time.Duration
}

// returnInTime checks every open call, and every Close that a fault called.
func (o *oracle) returnInTime() {
	if o.w.done.Failed() {
		return
	}
	late := o.lateCalls(o.w.Now())
	slices.SortFunc(late, func(x, y lateCall) int {
		return cmp.Or(x.a.p.Index-y.a.p.Index, cmp.Compare(x.a.name, y.a.name))
	})
	for _, l := range late {
		o.violated("prompt", "a call for %q of %s goes on %v after its time was up", l.a.name, l.a.p,
			l.by)
	}
	for _, p := range o.w.lives {
		if p.closing != nil && !p.closing.seen && !p.Dead && p.Paused == 0 {
			o.closesInTime(p, p.closing)
		}
	}
}

// lateCalls returns the open calls that should have returned. It skips instants at which no call
// can be late. For that it assumes that no process's clock runs twice as fast as true time.
func (o *oracle) lateCalls(now time.Duration) (late []lateCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now < o.soonest {
		return nil
	}
	o.soonest = now + time.Hour
	for p, attempts := range o.attempts {
		if p.Dead || len(attempts) == 0 {
			continue
		}
		mono := p.Clock.Now().Mono
		for _, a := range attempts {
			by := time.Duration(math.MinInt64)
			if a.ended > 0 {
				by = now - a.ended
			}
			if a.limit > 0 {
				by = max(by, mono-a.limit)
			}
			if by > math.MinInt64 {
				o.soonest = min(o.soonest, now+max(0, -by)/2)
			}
			if by = min(by, now-p.Resumed); by > promptly && p.Paused == 0 {
				late = append(late, lateCall{a, by})
			}
		}
	}
	return late
}

// closesInTime checks a Close that a fault called. It must return once its context ends, or after
// one try if it was already done. After it no lock may name the process, unless a fault has struck.
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
	if !done {
		return
	}
	// After the end of its context Close tries the rest once more.
	tries := c.since + o.w.s.Timing.Limit + time.Second
	if c.err != nil && (o.w.Now() < tries && !o.w.healed) {
		return
	}
	c.seen = true
	if c.err != nil && max(o.troubled[p], p.cut, p.deaf, p.hang, p.old) > c.since {
		return
	}
	for _, name := range o.asked() {
		l, _ := o.w.store.lockAsOf(name, nil)
		for _, party := range partiesOf(l) {
			if p.named(party.Process) && !o.posthumous[party.TS] && !o.w.twinned(p) {
				o.violated("I8", "%s has closed (%v), and %q still names it", p, c.err, name)
			}
		}
	}
}

// An asking is a caller that polls a lock.
type asking struct {
	p    *process
	name string
}

// asks records a caller that polls a lock. The returned function removes the record.
func (o *oracle) asks(p *process, name string) func() {
	a := &asking{p, name}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking = append(o.asking, a)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.asking = slices.DeleteFunc(o.asking, func(other *asking) bool { return other == a })
	}
}

// objectID returns a new session for a foreign manager.
func (w *world) objectID() bson.ObjectID {
	w.ids++
	id := bson.ObjectID{0: 0xf0}
	for i := range 8 {
		id[11-i] = byte(w.ids >> (8 * i))
	}
	return id
}

// twinned reports whether another process pings under an id of p.
func (w *world) twinned(p *process) bool {
	return slices.ContainsFunc(w.lives, func(other *process) bool {
		return other.twin != "" && p.named(other.twin)
	})
}
