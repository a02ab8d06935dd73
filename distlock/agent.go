package distlock

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/queue"
)

const (
	// maxEntries limits the entries of a process in the queue of one lock. With two entries, the
	// second is already queued when the first is granted the lock.
	maxEntries = 2
	// crowded is the queue length from which a process adds no second entry. From this length on,
	// it also queues no session with a release.
	crowded = transition.MaxEnqueued
	// maxOrphans limits the tries of one lock whose calls have all ended. At the limit, a further
	// TryLock waits until one of these tries ends.
	maxOrphans = 2
	// leastSpare is the minimum time for which an entry stays queued although no call needs it.
	leastSpare = 10 * time.Millisecond
)

type agents struct {
	m *Manager

	mu     sync.Mutex // guards the fields below, all agents, and their calls and entries
	byName map[string]*agent
	rtt    time.Duration // smoothed round trip of a command that queues an entry
}

// maxAgents is the number of agents at which idle agents are removed.
const maxAgents = 256

// An agent acquires one lock for all callers of a process. The callers form a queue inside the
// process, first come, first served. The calls of TryLock start tries, see startTry. The other
// calls share the agent's entries in the queue of the lock document. An agent has at most
// maxEntries entries, or more for calls that can hold the lock together.
//
// A session that is granted the lock serves the first call with the options of its entry. The entry
// of a call that gave up is kept for a similar call. If no call can use the session, it is removed
// from the lock. A call that times out does not cancel a command.
type agent struct {
	in      *agents
	m       *Manager
	name    string
	calls   []*call       // in order of arrival
	entries []*entry      // queued in the document, or being sent
	tries   []*try        // being sent
	queued  int           // queue entries of other processes, as last read
	failure error         // error of the last command; nil after an answer
	hold    time.Duration // duration of the last hold; math.MaxInt64 before the first release

	pause  time.Duration // pause after the last failure; 0 after an answer
	resume time.Duration // monotonic time before which no entry is sent after a failure
}

// A want holds the options of a call that the documents store, and the field standby. A session can
// serve every call with an equal want. If the call of a session has given up, the session can also
// serve a call with a similar want.
type want struct {
	mode  catalog.Mode
	limit int32
	why   string
	label string
	life  time.Duration // of the lease, or 0
	// standby is set for a call of [internals.Standby]. Its entry is not kept for later calls.
	standby bool
}

// similar reports whether w and o differ at most in the reason and the label. Wants of standby
// calls are not similar, because an election publishes its metadata as the reason.
func (w want) similar(o want) bool {
	return w.mode == o.mode && w.limit == o.limit && w.life == o.life && !w.standby && !o.standby
}

// get returns the agent of the named lock, and makes it if necessary. The caller holds mu.
func (in *agents) get(name string) *agent {
	a := in.byName[name]
	if a == nil {
		if len(in.byName) >= maxAgents { // an agent that pauses after a failure stays
			now := in.m.cfg.Clock.Now().Mono
			maps.DeleteFunc(in.byName, func(_ string, a *agent) bool { return a.idle() && a.resume <= now })
		}
		a = &agent{in: in, m: in.m, name: name, hold: math.MaxInt64}
		in.byName[name] = a
	}
	return a
}

// idle reports whether the agent has no call, entry or try. The caller holds mu.
func (a *agent) idle() bool { return len(a.calls)+len(a.entries)+len(a.tries) == 0 }

// A try acquires the lock for calls of TryLock, without a queue entry.
type try struct {
	want  want
	calls int // number of its calls that wait; guarded by the mu of the agents
}

// startTry starts a try for a call that has none, unless the call must wait for a running try. A
// try for an exclusive lock serves all calls with equal options that wait at its start. A later
// call waits for the end of that try. So a refusal costs a process the same number of commands for
// one call and for many. The caller holds mu.
func (a *agent) startTry(c *call) {
	if c.try != nil {
		return
	}
	together, orphans := c.o.mode == catalog.Exclusive, 0
	for _, t := range a.tries {
		if together && t.want == c.o.want {
			return
		}
		if t.calls == 0 {
			orphans++
		}
	}
	if orphans >= maxOrphans {
		return
	}
	t := &try{want: c.o.want}
	for _, o := range a.calls {
		if o == c || together && o.once && o.try == nil && o.o.want == t.want {
			o.try = t
			t.calls++
		}
	}
	a.tries = append(a.tries, t)
	a.m.loops.Go(func() { a.runTry(t) }) // ends with its commands
}

// leave removes a call from the queue of callers. It returns false if the call already has an
// answer. It also returns the reason for the wait, or nil. The reason is that of an entry with
// equal options, else that of another entry, else the agent's last failure.
func (a *agent) leave(c *call) (left bool, why error) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	for _, e := range a.entries {
		if reason := e.reason(); reason != nil && (why == nil || e.want == c.o.want) {
			why = reason
		}
	}
	if why == nil {
		why = a.failure
	}
	i := slices.Index(a.calls, c)
	if i < 0 {
		return false, why
	}
	a.remove(i)
	a.adjust(nil)
	return true, why
}

// remove removes a call from the queue of callers. The caller holds mu.
func (a *agent) remove(i int) {
	if t := a.calls[i].try; t != nil {
		t.calls--
	}
	a.calls = slices.Delete(a.calls, i, i+1)
}

// adjust starts the tries and entries that the calls need. It also marks each entry as spare or as
// needed. If an exclusive session has just been given to a call, granted is that session, else nil.
// The caller holds mu.
func (a *agent) adjust(granted *session) {
	spare := slices.Clone(a.entries)
	run := a.together()
	served := map[int32]int{}  // calls that have or need an entry, by limit
	entries := map[int32]int{} // the number of entries, by limit
	for _, e := range a.entries {
		entries[e.want.limit]++
	}
	for i, c := range a.calls {
		if c.once {
			a.startTry(c)
			continue
		}
		c.entry = nil
		if served[c.o.limit] >= maxEntries && i >= run {
			continue // earlier calls use up the entries
		}
		served[c.o.limit]++
		// At most maxEntries entries have the same limit. A call that can hold the lock together with
		// earlier calls is not subject to this maximum.
		room := entries[c.o.limit] == 0 || a.queued+len(a.entries) < crowded &&
			(i < run || entries[c.o.limit] < maxEntries)
		at := slices.IndexFunc(spare, func(e *entry) bool { return e.want == c.o.want })
		if at < 0 { // an entry of a call that gave up keeps its place for this call
			at = slices.IndexFunc(spare, func(e *entry) bool { return e.want.similar(c.o.want) })
		}
		if at >= 0 {
			c.entry = spare[at]
			spare = slices.Delete(spare, at, at+1)
		} else if room {
			c.entry = &entry{
				a: a, m: a.m, want: c.o.want, after: granted, changed: make(chan struct{}, 1),
			}
			a.entries = append(a.entries, c.entry)
			entries[c.o.limit]++
			a.m.loops.Go(c.entry.run) // ends when it is granted, fails or is spare, or with Close
		}
	}
	for _, e := range a.entries {
		if is := slices.Contains(spare, e); is != e.spare {
			e.spare = is
			select {
			case e.changed <- struct{}{}:
			default: // the entry has yet to read the last change
			}
		}
	}
	if a.idle() && a.pause == 0 && a.in.byName[a.name] == a {
		delete(a.in.byName, a.name)
	}
}

// together returns the number of calls, from the head of the queue of callers, that can hold the
// lock together. These are shared calls, or as many calls as there are permits. Each of these calls
// gets its own entry. The caller holds mu.
func (a *agent) together() int {
	if len(a.calls) == 0 || a.calls[0].o.mode == catalog.Exclusive {
		return 0
	}
	first := a.calls[0].o
	n := slices.IndexFunc(a.calls, func(c *call) bool {
		return c.o.mode != first.mode || c.o.limit != first.limit
	})
	if n < 0 {
		n = len(a.calls)
	}
	if first.mode == catalog.Permit {
		n = min(n, int(first.limit))
	}
	return n
}

// granted ends an entry or a try whose session holds the lock, and gives the session to a call. If
// no call can use the session, it is removed from the lock.
func (a *agent) granted(s *session, e *entry, t *try) {
	exclusive := s.mode == catalog.Exclusive // before a call has the session
	a.in.mu.Lock()
	served := a.serve(s, e, t)
	a.ended(e, t)
	if served && exclusive {
		a.adjust(s)
	} else {
		a.adjust(nil)
	}
	a.in.mu.Unlock()
	if !served {
		a.m.giveBack(s)
	}
}

// serve gives a session to the first call that fits, and returns false if there is none. A call of
// the try t comes first. Otherwise a call fits if it has the options of the call that the entry e
// serves, or, without such a call, the options of the session. The caller holds mu.
func (a *agent) serve(s *session, e *entry, t *try) bool {
	first := func(fits func(c *call) bool) int {
		return slices.IndexFunc(a.calls, func(c *call) bool { return c.ctx.Err() == nil && fits(c) })
	}
	i := first(func(c *call) bool { return t != nil && c.try == t })
	if i < 0 {
		w := s.want
		if i = first(func(c *call) bool { return e != nil && c.entry == e }); i >= 0 {
			w = a.calls[i].o.want
		}
		i = first(func(c *call) bool { return c.o.want == w })
	}
	if i < 0 || clock.Over(a.m.closed) {
		return false
	}
	a.calls[i].answer <- answer{session: s}
	a.remove(i)
	return true
}

// failed ends an entry or a try. The error of a try goes to its calls. The error of an entry goes
// to all calls that wait for an entry. A *PermitMismatchError of an entry goes only to the calls
// with the same limit, and ErrBadOption only to those with the same lease. If err is nil, no call
// gets an answer.
func (a *agent) failed(err error, e *entry, t *try) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.calls = slices.DeleteFunc(a.calls, func(c *call) bool {
		concerns := t != nil && c.try == t
		if e != nil && !c.once {
			concerns = (!errors.Is(err, ErrPermitMismatch) || c.o.limit == e.want.limit) &&
				(!errors.Is(err, ErrBadOption) || c.o.life == e.want.life)
		}
		if err == nil || !concerns {
			return false
		}
		c.answer <- answer{err: err}
		return true
	})
	a.ended(e, t)
	a.adjust(nil)
}

// ended removes the entry e and the try t. Either may be nil. The caller holds mu.
func (a *agent) ended(e *entry, t *try) {
	a.entries = slices.DeleteFunc(a.entries, func(o *entry) bool { return o == e })
	a.tries = slices.DeleteFunc(a.tries, func(o *try) bool { return o == t })
	for _, c := range a.calls {
		if c.try == t {
			c.try = nil // another try may serve the call
		}
	}
}

// dismiss ends an entry if it is spare. It returns false if a call needs the entry.
func (a *agent) dismiss(e *entry) bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if e.spare {
		a.ended(e, nil)
		a.adjust(nil)
	}
	return e.spare
}

// timeLeft returns the shortest remaining time of the calls whose options are equal to w. It
// returns 0 if no call has a deadline.
func (a *agent) timeLeft(w want) (left time.Duration) {
	now := a.m.cfg.Clock.Now()
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	bound := func(d time.Duration) {
		if d > 0 && (left == 0 || d < left) {
			left = d
		}
	}
	for _, c := range a.calls {
		if c.o.want != w {
			continue
		}
		if at, ok := c.ctx.Deadline(); ok {
			bound(at.Sub(now.Wall))
		}
		if c.o.bounded {
			bound(c.o.wait - (now.Mono - c.o.began))
		}
	}
	return left
}

// answered records the reply to a command that queued an entry: the number of queued entries of
// other processes, and the round trip. The reply ends the pause after a failure.
func (a *agent) answered(lock catalog.Lock, process string, took time.Duration) {
	others := 0
	for _, p := range lock.Waiters {
		if p.Process != process {
			others++
		}
	}
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.queued, a.failure, a.pause, a.resume = others, nil, 0, 0
	if a.in.rtt == 0 {
		a.in.rtt = took
	}
	a.in.rtt += (took - a.in.rtt) / 4
}

// backOff makes the entries of the lock pause after a failed command. The pause begins at
// Config.Poll, doubles after each further failure, and is at most Config.PollMax.
func (in *agents) backOff(name string, failure error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.get(name)
	a.failure = failure
	a.pause = min(max(2*a.pause, a.m.cfg.Poll), a.m.cfg.PollMax)
	a.resume = a.m.cfg.Clock.Now().Mono + a.m.pinger.Jitter(a.pause, 0.2)
}

// backedOff returns the remaining pause after a failure. If no pause remains, the result is zero or
// negative.
func (a *agent) backedOff() time.Duration {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return a.resume - a.m.cfg.Clock.Now().Mono
}

// waiting returns the number of calls that wait, and the longest wait of a call. The longest wait
// does not include calls with the option standby.
func (in *agents) waiting() (n int, oldest time.Duration) {
	now := in.m.cfg.Clock.Now().Mono
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.byName {
		for _, c := range a.calls {
			if c.once {
				continue
			}
			n++
			if !c.o.standby {
				oldest = max(oldest, now-c.o.began)
			}
		}
	}
	return n, oldest
}

// An entry is one place of an agent in the queue of the lock document. Its sessions are queued one
// after the other, until one of them is granted the lock. The entry can serve every call with equal
// options.
type entry struct {
	a       *agent
	m       *Manager
	want    want
	changed chan struct{} // signals a change of spare; capacity 1
	since   time.Time     // server's clock: when a removed session was queued; else zero
	after   *session      // its release may queue the first session of the entry; or nil

	// The fields below are guarded by the mu of the agents.
	spare   bool // set while no call needs the entry
	waiter  *queue.Waiter
	failure error // why the session cannot be queued
}

// reason returns the reason why the entry waits: its failure, else a *HeldError for the last view,
// else nil. The caller holds mu.
func (e *entry) reason() error {
	if e.failure != nil || e.waiter == nil {
		return e.failure
	}
	if s := e.waiter.View.Load(); s != nil {
		return e.m.heldError(*s)
	}
	return nil
}

// note records why the session cannot be queued. Nil clears the record.
func (e *entry) note(failure error) {
	e.a.in.mu.Lock()
	defer e.a.in.mu.Unlock()
	e.failure = failure
}
