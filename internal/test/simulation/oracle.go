package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// Stats counts what happened in a run.
type Stats struct {
	Events, Calls        int
	Guards, Takeovers    int
	Granted, Evicted     int // guards granted to queued waiters; evicted dead waiters
	Refused, StaleWrites int // refused fenced writes; accepted stale writes without a fence
	Simulated            time.Duration
	Faults               map[Kind]int
}

// Add adds the counts of another run.
func (s *Stats) Add(o Stats) {
	s.Events += o.Events
	s.Calls += o.Calls
	s.Guards += o.Guards
	s.Takeovers += o.Takeovers
	s.Granted += o.Granted
	s.Evicted += o.Evicted
	s.Refused += o.Refused
	s.StaleWrites += o.StaleWrites
	s.Simulated += o.Simulated
	if s.Faults == nil {
		s.Faults = map[Kind]int{}
	}
	for k, n := range o.Faults {
		s.Faults[k] += n
	}
}

// An oracle watches a run and records the violations.
type oracle struct {
	w     *world
	names []string // names of the locks that users asked for

	handed   map[string][]int64 // largest fences by name: of all guards, of exclusive guards
	accepted map[string]int64   // largest fence at the resource, by name
	looks    map[*process][]seen
	foreign  map[string]time.Duration // last sign of life of a foreign process
	strays   map[string]bool          // process ids with a ping document from a late ping
	troubles time.Duration            // time of the last fault
	troubled map[*process]time.Duration
	leases   map[tenant]*lease
	tenures  map[bson.ObjectID]*tenure // leases by session
	due      time.Duration             // time of the next check of slow things
	soonest  time.Duration             // no open call is late before this time; guarded by mu
	slow     map[slowThing]*waitingFor
	outside  map[outsider]*outside
	left     map[bson.ObjectID]time.Duration // time at which a session stopped holding its lock
	forgiven map[bson.ObjectID]bool          // sessions that an unaware twin has released

	// posthumous contains the sessions of commands that ran too late, because their process had died,
	// closed or taken another id, or was closing while a transaction blocked them. The process may
	// have searched for its sessions earlier.
	posthumous map[bson.ObjectID]bool

	mu       sync.Mutex // guards the rest
	open     []*Held    // held by users; Release has not returned
	attempts map[*process]map[string]*attempt
	asking   []*asking // callers that poll a lock
	news     []news
}

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
	w.done.Faults = map[Kind]int{}
	return &oracle{
		w: w, handed: map[string][]int64{}, accepted: map[string]int64{},
		looks: map[*process][]seen{}, foreign: map[string]time.Duration{}, strays: map[string]bool{},
		troubled: map[*process]time.Duration{}, slow: map[slowThing]*waitingFor{},
		outside: map[outsider]*outside{},
		left:    map[bson.ObjectID]time.Duration{}, forgiven: map[bson.ObjectID]bool{},
		posthumous: map[bson.ObjectID]bool{},
		attempts:   map[*process]map[string]*attempt{}, leases: map[tenant]*lease{},
		tenures: map[bson.ObjectID]*tenure{},
	}
}

func (o *oracle) violated(rule, format string, args ...any) {
	what := randomPart.ReplaceAllString(o.w.log.plain(fmt.Sprintf(format, args...)), "")
	v := Violation{At: o.w.Now(), Rule: rule, What: what}
	o.w.done.Violations = append(o.w.done.Violations, v)
	o.w.log.add("VIOLATION %s: %s", v.Rule, v.What)
}

// begin records the start of an attempt, and the method end records its end. Users call both.
func (o *oracle) begin(p *process, label string, a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.attempts[p] == nil {
		o.attempts[p] = map[string]*attempt{}
	}
	o.attempts[p][label] = a
	o.soonest = 0
	o.add(a.name)
}

// register records the name of a lock that a user asks for.
func (o *oracle) register(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(name)
}

// add is like register. The caller holds mu.
func (o *oracle) add(name string) {
	if !slices.Contains(o.names, name) {
		o.names = append(o.names, name)
	}
}

// asked returns a copy of the recorded names. Other goroutines may add names concurrently.
func (o *oracle) asked() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.names)
}

func (o *oracle) end(p *process, label string, a *attempt, h *Held, err error) {
	o.mu.Lock()
	delete(o.attempts[p], label)
	if h != nil {
		o.open = append(o.open, h)
	}
	o.news = append(o.news, news{p: p, a: a, got: h, err: err})
	o.mu.Unlock()
	if h != nil {
		o.w.log.told("%s holds %q with fence %d", p, h.name, h.guard.Fence())
	}
}

// released records that Release has returned.
func (o *oracle) released(h *Held, err error, called time.Duration) {
	switch {
	case err == nil:
		o.w.log.told("%s has released %q", h.p, h.name)
	case errors.Is(err, distlock.ErrLockLost):
		o.w.log.told("%s has released %q: it was lost before", h.p, h.name)
	default:
		o.w.log.told("%s could not release %q yet", h.p, h.name)
	}
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
	open := slices.Clone(o.open)
	o.mu.Unlock()
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
		o.w.done.Guards++
		if n.a.stood {
			o.w.done.Granted++
		}
		o.fenceOf(n)
		if err := n.got.guard.Err(); errors.Is(err, distlock.ErrLockLost) {
			o.violated("lost", "%s was handed a guard of %q that was lost already", n.p, n.got.name)
		}
		return
	case n.a == nil || n.p.Dead:
		return
	}
	o.toldTruth(n)
	if n.p.struck-n.a.struck != 1 || n.p.closing != nil { // Close also ends commands
		return
	}
	// Only one fault has struck, so the store answered when the process checked the lock. The store
	// must not hold the lock for a failed attempt, with two exceptions: its release is in transit, or
	// waits for the next ping because the term has expired and a twin may have the lock.
	l, bad := catalog.ParseLock(o.w.Server.Document(catalog.LocksCollection, n.a.name))
	if !errors.Is(n.err, distlock.ErrOutcomeUnknown) || bad != nil {
		return
	}
	for _, holder := range l.Holders() {
		if slices.Contains(n.a.sessions, holder.TS) && o.mayRelease(n.p) && !n.p.leaves(holder.TS) {
			o.violated("I6", "%s was told it has not got %q, which the store holds for it",
				n.p, n.a.name)
		}
	}
}

// fenceOf checks I2: the fence of an exclusive guard is larger than the fences of all earlier
// guards. Sharers may report their guards in another order than they acquired them.
func (o *oracle) fenceOf(n news) {
	fence, handed := n.got.guard.Fence(), o.handed[n.got.name]
	if handed == nil {
		handed = []int64{0, 0}
		o.handed[n.got.name] = handed
	}
	last := handed[1]
	if n.got.how.mode() == catalog.Exclusive {
		last = handed[0]
		handed[1] = max(last, fence)
	}
	if fence <= last && n.p.snapshot == nil {
		o.violated("I2", "%s holds %q with fence %d after fence %d", n.p, n.got.name, fence, last)
	}
	handed[0] = max(handed[0], fence)
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
				o.forgiven[h.session()] || o.forgiven[other.session()] ||
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
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range o.open {
		if h.session() == ts {
			return h
		}
	}
	return nil
}

// wrote checks a user's write, and reports whether the fenced write is accepted (I5).
func (o *oracle) wrote(h *Held) bool {
	last, fence := o.accepted[h.name], h.guard.Fence()
	if fence < last {
		o.w.done.Refused++
		o.w.done.StaleWrites++ // the unfenced write succeeded
		return false
	}
	o.accepted[h.name] = fence
	return true
}

// sent records a command when it is sent.
func (o *oracle) sent(c *call) {
	if c.op == fault.Acquire || c.op == fault.Enter {
		o.mu.Lock()
		if a := o.attempts[c.p][labelOf(c.request.Who)]; a != nil {
			a.sessions = append(a.sessions, c.ts)
			a.name = c.subject
		}
		o.mu.Unlock()
	}
	switch c.op {
	case fault.Release:
		c.unaware = o.mayRelease(c.p)
	case fault.Ping, fault.Renew:
		c.reading = c.p.Clock.Now()
	case fault.Look:
		c.mono = c.p.Clock.Now().Mono
	case fault.Evict:
		o.byTheRule(c)
	}
}
