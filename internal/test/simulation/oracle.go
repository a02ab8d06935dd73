package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/fault"
)

// A Violation describes how a run violated a rule.
type Violation struct {
	At   time.Duration
	Rule string // "I1" and so on, see the package comment
	What string
}

func (v Violation) String() string {
	return fmt.Sprintf("%v: %s: %s", v.At.Round(time.Millisecond), v.Rule, v.What)
}

// Stats counts the events of a run: faults by kind, guards, takeovers and others.
type Stats map[string]int

// Add adds the counts of o.
func (s Stats) Add(o Stats) {
	for what, n := range o {
		s[what] += n
	}
}

// An oracle checks a run and records the violations.
type oracle struct {
	w *world

	guardFences  map[string]fences
	commitFences map[string]int64 // largest fence of a committed transaction, by name
	snapshots    map[*process][]snapshot
	foreignAlive time.Duration   // last ping or acquisition of the foreign manager
	latePings    map[string]bool // process ids whose ping document was created again
	faulty       bool            // there was a fault
	lastFault    time.Duration   // time of the last fault
	lastFaultOf  map[*process]time.Duration
	terms        map[string]*term                // by process id
	guardLeases  map[bson.ObjectID]*guardLease   // leases by session
	nextCheck    time.Duration                   // time of the next call of checkPending
	pending      map[pendingState]time.Duration  // start of each state
	contending   map[contention]time.Duration    // start of each contention
	left         map[bson.ObjectID]time.Duration // time at which a session stopped holding its lock

	// tooLate contains the sessions of commands that the store applied too late, for example after
	// their process had died, begun to close or changed its process id. Such a session can stay in
	// its lock.
	tooLate map[bson.ObjectID]bool

	mu       sync.Mutex // guards the rest
	names    []string   // names of the locks that users asked for
	open     []*Held    // held by users; Release has not returned
	attempts []*attempt
}

// fences contains two fences of a lock: the largest of all its guards, and the largest of its
// exclusive guards.
type fences struct{ all, exclusive int64 }

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, guardFences: map[string]fences{}, commitFences: map[string]int64{},
		snapshots: map[*process][]snapshot{}, latePings: map[string]bool{},
		lastFaultOf: map[*process]time.Duration{},
		left:        map[bson.ObjectID]time.Duration{}, tooLate: map[bson.ObjectID]bool{},
		terms: map[string]*term{}, guardLeases: map[bson.ObjectID]*guardLease{},
	}
}

func (o *oracle) violated(rule, format string, args ...any) {
	v := Violation{At: o.w.Now(), Rule: rule, What: o.w.log.plain(format, args...)}
	o.w.done.Violations = append(o.w.done.Violations, v)
	o.w.log.add("VIOLATION %s: %s", v.Rule, v.What)
}

// begin records the start of an attempt to acquire one or several locks.
func (o *oracle) begin(a *attempt, names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = append(o.attempts, a)
	for _, name := range append(names, a.name) {
		if !slices.Contains(o.names, name) {
			o.names = append(o.names, name)
		}
	}
}

// forget ends an attempt whose result is not checked.
func (o *oracle) forget(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = slices.DeleteFunc(o.attempts, func(other *attempt) bool { return other == a })
}

func (o *oracle) lockNames() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.names)
}

// guards returns the guards that users have not released.
func (o *oracle) guards() []*Held {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.open)
}

// attemptFor returns the attempt for which a command is sent, or nil.
func (o *oracle) attemptFor(c *call) *attempt {
	label := labelOf(c.request.Who)
	return o.attempt(func(a *attempt) bool { return a.p == c.p && a.label == label })
}

// labelOf returns the label in a value of the document field "who". The value has the form
// <process>:<label>:<random>.
func labelOf(who string) string {
	parts := strings.Split(who, ":")
	return parts[max(0, len(parts)-2)]
}

// end records the result of an attempt, and checks it before the next event.
func (o *oracle) end(a *attempt, h *Held, err error) {
	o.forget(a)
	key := ""
	if h != nil {
		o.w.log.add("%s holds %q with fence %d", a.p, h.name, h.guard.Fence())
		key = fmt.Sprintf("%20d", h.guard.Fence())
		o.mu.Lock()
		o.open = append(o.open, h)
		o.mu.Unlock()
	} else if !errors.Is(err, distlock.ErrHeld) {
		o.w.log.add("%s does not get %q: %v", a.p, a.name, err)
	}
	o.w.Post(a.p.Index, key, func() {
		if h != nil {
			o.checkGuard(a, h)
		} else if !a.p.Dead {
			o.checkFailed(a, err)
		}
	})
}

// released records that a call of Release has returned, and checks it before the next event.
func (o *oracle) released(h *Held, err error, called time.Duration) {
	o.w.log.add("%s has released %q: %v", h.p, h.name, err)
	o.w.Post(h.p.Index, "", func() {
		o.mu.Lock()
		o.open = slices.DeleteFunc(o.open, func(other *Held) bool { return other == h })
		o.mu.Unlock()
		if err == nil && !h.p.Dead {
			o.checkRelease(h, called)
		}
	})
}

func (o *oracle) check() {
	if open := o.guards(); len(open) > 0 {
		o.checkTrusted(open)
		o.checkStaysLost(open)
		o.checkLeases(open)
	}
	o.checkReturns()
	if now := o.w.Now(); now >= o.nextCheck {
		o.nextCheck = now + o.w.s.Timing.Ping/4
		o.checkPending(o.guards())
	}
}

func (o *oracle) checkGuard(a *attempt, h *Held) {
	o.w.done.Stats["guards"]++
	if a.queued {
		o.w.done.Stats["granted in the queue"]++
	}
	o.checkFence(h)
	if err := h.guard.Err(); errors.Is(err, distlock.ErrLockLost) {
		o.violated("lost", "%s acquired a guard of %q that was already lost", h.p, h.name)
	}
}

func (o *oracle) checkFailed(a *attempt, err error) {
	o.checkError(a, err)
	if a.p.faults-a.faults != 1 || o.w.Now() < a.p.faultsEnd() || // a question would be lost, too
		a.p.closing != nil || // Close also ends commands
		!errors.Is(err, distlock.ErrOutcomeUnknown) || !o.terms[a.p.id()].lasts() {
		return
	}
	// After a single fault, the process can ask the store for the outcome. So the session of the
	// failed attempt must not hold the lock, unless a release of the session is in transit.
	l, _ := o.w.store.lock(a.name)
	for _, holder := range l.Holders() {
		if slices.Contains(a.sessions, holder.TS) && !a.p.releasing(holder.TS) {
			o.violated("I6", "a call of %s for %q has failed, and its session holds the lock", a.p, a.name)
		}
	}
}

// checkFence checks rule I2. The fence of an exclusive guard must be larger than the fences of all
// earlier guards. The fence of another guard must be larger than the fences of all earlier
// exclusive guards. It may be below the fence of an earlier sharer, because two sharers can report
// their guards in any order.
func (o *oracle) checkFence(h *Held) {
	fence, was := h.guard.Fence(), o.guardFences[h.name]
	now, last := fences{max(was.all, fence), was.exclusive}, was.exclusive
	if h.how.mode() == catalog.Exclusive {
		now.exclusive, last = now.all, was.all
	}
	if fence <= last {
		o.violated("I2", "%s holds %q with fence %d after fence %d", h.p, h.name, fence, last)
	}
	o.guardFences[h.name] = now
}

// trusted reports whether a guard is trusted. It records a loss of the guard.
func (o *oracle) trusted(h *Held) bool {
	if err := h.guard.Err(); err != nil {
		o.lose(h, err)
		return false
	}
	return true
}

// checkTrusted checks rule I1. It calls Err only if a lock has several guards, because Err makes a
// guard notice its loss.
func (o *oracle) checkTrusted(open []*Held) {
	for i, h := range open {
		permits := 1
		for _, other := range open[i+1:] {
			if h.name != other.name || h.session() == other.session() || o.w.done.Failed() ||
				!o.trusted(h) || !o.trusted(other) {
				continue
			}
			permits++
			switch mode := h.how.mode(); {
			case mode == catalog.Shared && other.how.mode() == mode:
			case mode == catalog.Permit && other.how.mode() == mode && permits <= h.how.Permits:
			default:
				o.violated("I1", "two guards of %q are trusted: %s with fence %d and %s with fence %d",
					h.name, h.p, h.guard.Fence(), other.p, other.guard.Fence())
			}
		}
	}
}

func (o *oracle) checkStaysLost(open []*Held) {
	for _, h := range open {
		ctx := h.guard.Context()
		if cause := context.Cause(ctx); errors.Is(cause, distlock.ErrLockLost) {
			o.lose(h, cause)
		}
		if h.lost && h.guard.Err() == nil {
			o.violated("lost", "%s trusts %q with fence %d again, after its loss",
				h.p, h.name, h.guard.Fence())
		}
	}
}

func (o *oracle) lose(h *Held, err error) {
	if !h.lost && errors.Is(err, distlock.ErrLockLost) && !h.p.Dead {
		o.checkLoss(h, err)
	}
	h.lost = true
}

func (o *oracle) guardOf(ts bson.ObjectID) *Held {
	for _, h := range o.guards() {
		if h.session() == ts {
			return h
		}
	}
	return nil
}

// sent is called when a command is sent. It records the session of an acquisition, and checks an
// eviction.
func (o *oracle) sent(c *call) {
	switch c.op {
	case fault.Acquire, fault.Enter, fault.Release:
		ts := c.entering()
		if a := o.attemptFor(c); a != nil && ts != (bson.ObjectID{}) {
			o.mu.Lock()
			a.sessions = append(a.sessions, ts)
			a.name = c.subject
			o.mu.Unlock()
		}
	case fault.Evict:
		o.checkEviction(c)
	}
}
