package simulation

import (
	"cmp"
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

// A Violation is a broken guarantee.
type Violation struct {
	At   time.Duration
	Rule string // "I1" and so on, see the package comment
	What string
}

func (v Violation) String() string {
	return fmt.Sprintf("%v: %s: %s", v.At.Round(time.Millisecond), v.Rule, v.What)
}

// Stats counts what happened in a run: the faults by kind, and other events.
type Stats map[string]int

// Add adds the counts of another run.
func (s Stats) Add(o Stats) {
	for what, n := range o {
		s[what] += n
	}
}

// An oracle watches a run and records the violations.
type oracle struct {
	w *world

	handed      map[string]fences
	accepted    map[string]int64 // largest fence of a committed transaction, by name
	looks       map[*process][]seen
	foreignSign time.Duration   // last sign of life of the foreign manager
	strays      map[string]bool // process ids with a ping document from a late ping
	faulty      bool            // there was a fault
	troubles    time.Duration   // time of the last fault
	troubled    map[*process]time.Duration
	leases      map[string]*lease         // by process id
	tenures     map[bson.ObjectID]*tenure // leases by session
	due         time.Duration             // time of the next check of slow things
	slow        map[slowThing]*waitingFor
	left        map[bson.ObjectID]time.Duration // time at which a session stopped holding its lock

	// posthumous contains the sessions of commands that ran too late, because their process had died,
	// closed or taken another id, or was closing while a transaction blocked them, and of late copies.
	// The process may have searched for its sessions earlier.
	posthumous map[bson.ObjectID]bool

	mu       sync.Mutex // guards the rest
	names    []string   // names of the locks that users asked for
	open     []*Held    // held by users; Release has not returned
	attempts []*attempt
	news     []news
}

// fences are the largest fences of a lock's guards so far: of all and of the exclusive ones.
type fences struct{ all, exclusive int64 }

// news is a report of a user's goroutine to the oracle.
type news struct {
	p        *process
	a        *attempt
	got      *Held
	err      error
	released *Held
	called   time.Duration // time of the call of Release
	wrong    string        // problem found by the user itself
}

// fence returns the fence of a new guard, or 0 for other news.
func (n news) fence() int64 {
	if n.got == nil {
		return 0
	}
	return n.got.guard.Fence()
}

func newOracle(w *world) *oracle {
	return &oracle{
		w: w, handed: map[string]fences{}, accepted: map[string]int64{},
		looks: map[*process][]seen{}, strays: map[string]bool{},
		troubled: map[*process]time.Duration{}, slow: map[slowThing]*waitingFor{},
		left: map[bson.ObjectID]time.Duration{}, posthumous: map[bson.ObjectID]bool{},
		leases: map[string]*lease{}, tenures: map[bson.ObjectID]*tenure{},
	}
}

func (o *oracle) violated(rule, format string, args ...any) {
	v := Violation{At: o.w.Now(), Rule: rule, What: o.w.log.plain(format, args...)}
	o.w.done.Violations = append(o.w.done.Violations, v)
	o.w.log.add("VIOLATION %s: %s", v.Rule, v.What)
}

// begin records the start of an attempt for some locks, and the method end records its end. Users
// call both.
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

// forget ends a call that needs no checks.
func (o *oracle) forget(a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = slices.DeleteFunc(o.attempts, func(other *attempt) bool { return other == a })
}

// asked returns the names of the locks that users asked for.
func (o *oracle) asked() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.names)
}

// guards returns the guards that users hold.
func (o *oracle) guards() []*Held {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.open)
}

// attemptOf returns the attempt that a command serves, or nil.
func (o *oracle) attemptOf(c *call) *attempt {
	label := labelOf(c.request.Who)
	return o.attempt(func(a *attempt) bool { return a.p == c.p && a.label == label })
}

// labelOf returns the label in the field who: <process>:<label>:<random>.
func labelOf(who string) string {
	parts := strings.Split(who, ":")
	return parts[max(0, len(parts)-2)]
}

func (o *oracle) end(a *attempt, h *Held, err error) {
	o.forget(a)
	if h != nil {
		o.w.log.told("%s holds %q with fence %d", a.p, h.name, h.guard.Fence())
	} else if !errors.Is(err, distlock.ErrHeld) {
		o.w.log.told("%s does not get %q: %v", a.p, a.name, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h != nil {
		o.open = append(o.open, h)
	}
	o.news = append(o.news, news{p: a.p, a: a, got: h, err: err})
}

// released records that Release has returned.
func (o *oracle) released(h *Held, err error, called time.Duration) {
	o.w.log.told("%s has released %q: %v", h.p, h.name, err)
	o.say(news{p: h.p, released: h, err: err, called: called})
}

// say adds news for the next checks.
func (o *oracle) say(n news) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.news = append(o.news, n)
}

// look runs the checks after every event.
func (o *oracle) look() {
	o.mu.Lock()
	all := o.news
	o.news = nil
	for _, n := range all {
		if n.released != nil {
			n.released.over = true
			o.open = slices.DeleteFunc(o.open, func(h *Held) bool { return h.over })
		}
	}
	o.mu.Unlock()
	open := o.guards()
	slices.SortStableFunc(all, func(a, b news) int {
		return cmp.Or(a.p.Index-b.p.Index, cmp.Compare(a.fence(), b.fence()))
	})
	for _, n := range all {
		o.learn(n)
	}
	if len(open) > 0 {
		o.oneTrusted(open)
		o.lossIsOneWay(open)
		o.runOut(open)
	}
	o.returnInTime()
	if now := o.w.Now(); now >= o.due {
		o.due = now + o.w.s.Timing.Ping/4
		o.slowThings(open)
	}
}

// learn checks the end of an attempt: fences rise (I2), and the error of a failed attempt is true
// (I6).
func (o *oracle) learn(n news) {
	switch {
	case n.wrong != "":
		o.violated("truth", "%s: %s", n.p, n.wrong)
		return
	case n.released != nil:
		if n.err == nil && !n.p.Dead {
			o.heldThroughout(n.released, n.called)
		}
		return
	case n.got != nil:
		o.w.done.Stats["guards"]++
		if n.a.stood {
			o.w.done.Stats["granted in the queue"]++
		}
		o.fenceOf(n)
		if err := n.got.guard.Err(); errors.Is(err, distlock.ErrLockLost) {
			o.violated("lost", "%s was handed a guard of %q that was lost already", n.p, n.got.name)
		}
		return
	case n.p.Dead:
		return
	}
	o.toldTruth(n)
	if n.p.struck-n.a.struck != 1 || n.p.closing != nil || // Close also ends commands
		!errors.Is(n.err, distlock.ErrOutcomeUnknown) || !o.leases[n.p.id()].lasts() {
		return
	}
	// Only one fault has struck, so the store answered when the process checked the lock. The store
	// must not hold the lock for a failed attempt, unless its release is in transit.
	l, _ := o.w.store.lock(n.a.name)
	for _, holder := range l.Holders() {
		if slices.Contains(n.a.sessions, holder.TS) && !n.p.leaves(holder.TS) {
			o.violated("I6", "%s was told it has not got %q, which the store holds for it",
				n.p, n.a.name)
		}
	}
}

// fenceOf checks I2: the fence of an exclusive guard is larger than the fences of all earlier
// guards. Sharers may report their guards in another order than they acquired them.
func (o *oracle) fenceOf(n news) {
	fence, was := n.got.guard.Fence(), o.handed[n.got.name]
	now, last := fences{max(was.all, fence), was.exclusive}, was.exclusive
	if n.got.how.mode() == catalog.Exclusive {
		now.exclusive, last = now.all, was.all
	}
	if fence <= last {
		o.violated("I2", "%s holds %q with fence %d after fence %d", n.p, n.got.name, fence, last)
	}
	o.handed[n.got.name] = now
}

// trusted reports whether a guard may be trusted by its process's clock, and records a loss.
func (o *oracle) trusted(h *Held) bool {
	if err := h.guard.Err(); err != nil {
		o.lose(h, err)
		return false
	}
	return true
}

// oneTrusted checks I1. It asks guards only if a lock has several, because a question makes a guard
// notice its loss.
func (o *oracle) oneTrusted(open []*Held) {
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

// lossIsOneWay checks that a lost guard stays lost.
func (o *oracle) lossIsOneWay(open []*Held) {
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
		o.lostForNothing(h, err)
	}
	h.lost = true
}

// guardOf returns the open guard of a session, or nil.
func (o *oracle) guardOf(ts bson.ObjectID) *Held {
	for _, h := range o.guards() {
		if h.session() == ts {
			return h
		}
	}
	return nil
}

// sent records a command when it is sent.
func (o *oracle) sent(c *call) {
	switch c.op {
	case fault.Acquire, fault.Enter:
		if a := o.attemptOf(c); a != nil {
			o.mu.Lock()
			a.sessions = append(a.sessions, c.ts)
			a.name = c.subject
			o.mu.Unlock()
		}
	case fault.Evict:
		o.byTheRule(c)
	}
}
